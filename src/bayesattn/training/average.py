"""An exponential average of the weights."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from bayesattn.training.checkpoint import Tensors


class Average:
    """a ← a + (1 − d)(w − a) with d = min(decay, (1 + n) / (10 + n)) after n updates.

    The smaller d of the beginning lets the average forget the random weights it started from.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        named = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.decay = decay
        self.names = list(named)
        self.weights: list[Tensor] = list(named.values())
        self.averages = [weight.detach().clone() for weight in self.weights]

    @torch.no_grad()
    def update(self, updates: int) -> None:
        """Take in the weights after another step; `updates` is how many came before."""
        decay = min(self.decay, (1 + updates) / (10 + updates))
        # What torch.optim.swa_utils calls, too; its own class would ask the device at every step.
        torch._foreach_lerp_(self.averages, self.weights, 1 - decay)  # pyright: ignore[reportPrivateImportUsage]

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The model has the averaged weights in here."""
        originals = [weight.data for weight in self.weights]
        for weight, average in zip(self.weights, self.averages, strict=True):
            weight.data = average
        try:
            yield
        finally:
            for weight, original in zip(self.weights, originals, strict=True):
                weight.data = original

    def tensors(self) -> Tensors:
        """The averages by name."""
        return dict(zip(self.names, self.averages, strict=True))

    @torch.no_grad()
    def load(self, tensors: Tensors) -> None:
        """Continue from saved averages."""
        for name, average in self.tensors().items():
            average.copy_(tensors[name])
