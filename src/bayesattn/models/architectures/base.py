"""Base of architectures, and the model of a tunnel that is built from one.

    logits = head( norm( body( embedding(inputs) ) ) )

Embedding, norm and head are the same in all architectures. An architecture is a few plain fields
and the body that they describe. The body is causal, and all its layers have the same width.
Shapes: B batch, T positions, S scored positions, D width, C outcomes.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from bayesattn.checks import Strict
from bayesattn.tunnels import Tunnel


class Body(nn.Module):
    """Causal `layers` over embeddings [B, T, D], one after the other."""

    layers: nn.ModuleList

    def stages(self, x: Tensor) -> Iterator[Tensor]:
        """The states [B, T, D] that enter the first layer, then those that leave each layer."""
        yield x
        for layer in self.layers:
            x = self.step(layer, x)
            yield x

    def step(self, layer: nn.Module, x: Tensor) -> Tensor:
        return layer(x)

    def forward(self, x: Tensor) -> Tensor:
        for state in self.stages(x):
            x = state
        return x


@dataclass(frozen=True, kw_only=True)
class Architecture(Strict, ABC):
    """Base of all architectures; fields are plain JSON values."""

    name: ClassVar[str]

    layers: int = 2
    """Number of layers."""
    width: int = 64
    """Width of embeddings, states and layers."""

    def __post_init__(self) -> None:
        self._check_positive("layers", "width")

    @abstractmethod
    def body(self, tunnel: Tunnel) -> Body:
        """The layers, for inputs of this tunnel, with weights drawn from torch's global state."""

    def width_multiple(self) -> int:
        """Every possible width is a multiple of this."""
        return 1

    def to_dict(self) -> dict[str, Any]:
        """Name and all fields: `make_architecture(**architecture.to_dict())` is the same."""
        return {"name": self.name, **asdict(self)}

    def _check_positive(self, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be a positive integer, not {value}")


class Predictor(nn.Module):
    """Any architecture as a model of any tunnel: logits over outcomes at each position.

    Token inputs get an `nn.Embedding`, feature inputs an `nn.Linear`.
    """

    def __init__(self, architecture: Architecture, tunnel: Tunnel) -> None:
        super().__init__()
        self.architecture = architecture
        width = architecture.width
        if tunnel.vocabulary is not None:
            self.embedding: nn.Module = nn.Embedding(tunnel.vocabulary, width)
        elif tunnel.features is not None:
            self.embedding = nn.Linear(tunnel.features, width)
        else:
            raise ValueError("a tunnel needs a vocabulary or features, this one has neither")
        self.body = architecture.body(tunnel)
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.head = nn.Linear(width, tunnel.outcomes)

    def forward(self, inputs: Tensor, scored: Tensor | None = None) -> Tensor:
        """Logits [B, S, C] at the scored positions [S], or [B, T, C] at all of them.

        Inputs are tokens [B, T] or features [B, T, F].
        """
        x = self.body(self.embedding(inputs))
        if scored is not None:
            x = x.index_select(1, scored)
        return self.head(self.norm(x))

    def hidden(self, inputs: Tensor) -> tuple[Tensor, ...]:
        """States [B, T, D] that enter the first layer, and those that leave each layer."""
        return tuple(self.body.stages(self.embedding(inputs)))


def build(architecture: Architecture, tunnel: Tunnel, seed: int) -> Predictor:
    """A predictor whose initial weights depend on `seed` only; torch's global state stays."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Predictor(architecture, tunnel)
