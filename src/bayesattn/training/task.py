"""What the loop needs to know about what is learnt."""

from typing import Any, Protocol, Self

import torch
from torch import Generator, Tensor, nn


class Batch(Protocol):
    """Sequences of one step."""

    def rows(self, rows: slice) -> Self:
        """Some of the sequences."""
        ...

    def to(self, device: torch.device | str) -> Self:
        """The same on another device."""
        ...


class Task(Protocol):
    """Something to learn, with other data for every step."""

    @property
    def goal(self) -> str:
        """Which number of `evaluate` `TrainConfig.target` is compared with; less is better."""
        ...

    @property
    def tokens(self) -> int | None:
        """Tokens of one sequence, where speed is told in tokens."""
        ...

    def batch(self, generator: Generator, batch_size: int, step: int) -> Any:
        """The `Batch` of one step, a function of the generator's state and the step alone."""
        ...

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """What to minimise, one number in nats; calls `model` once.

        The mean over equal parts of a batch is the loss of the batch.
        """
        ...

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Quality on fixed held-out data."""
        ...
