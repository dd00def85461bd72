"""What every architecture is: a few plain fields, and the body they describe.

    logits = head( norm( body( embedding(inputs) ) ) )

Embedding, norm and head are the same for all (`predictor.py`); an architecture is the body between
them, causal and of one width throughout. Shapes: B batch, T positions, D width.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Protocol

from torch import Tensor, nn


class TunnelShape(Protocol):
    """What an architecture needs to know of a tunnel; every `bayesattn.tunnels.Tunnel` has it."""

    @property
    def outcomes(self) -> int:
        """Size of the predicted distribution."""
        ...

    @property
    def vocabulary(self) -> int | None:
        """Number of tokens, if inputs are tokens [B, T]."""
        ...

    @property
    def features(self) -> int | None:
        """Number of features, if inputs are [B, T, features]."""
        ...

    @property
    def prefix(self) -> int:
        """Positions before the first step: the header."""
        ...

    @property
    def positions(self) -> int:
        """Length T of the inputs."""
        ...


class Body(nn.Module, ABC):
    """Causal layers over embeddings [B, T, D]."""

    @abstractmethod
    def stages(self, x: Tensor) -> Iterator[Tensor]:
        """The states [B, T, D] that enter the first layer, then those that leave each layer."""

    def forward(self, x: Tensor) -> Tensor:
        """The last of `stages`."""
        for state in self.stages(x):
            x = state
        return x


@dataclass(frozen=True, kw_only=True)
class Architecture(ABC):
    """Base of all architectures; fields are plain JSON values."""

    name: ClassVar[str]
    later: ClassVar[tuple[str, ...]] = ()
    """Fields that older runs do not have."""

    layers: int = 2
    """Number of layers."""
    width: int = 64
    """Width of embeddings, states and layers."""

    def __post_init__(self) -> None:
        """Raise ValueError with one sentence about the first field that cannot work."""
        self._check_positive("layers", "width")

    @abstractmethod
    def body(self, tunnel: TunnelShape) -> Body:
        """The layers, for inputs of this tunnel, with weights drawn from torch's global state."""

    def width_multiple(self) -> int:
        """Every possible width is a multiple of this."""
        return 1

    def to_dict(self) -> dict[str, Any]:
        """Name and fields: `make_architecture(**architecture.to_dict())` is the same again.

        Fields that came later are left out while they have their default, so that an older run is
        still the same run.
        """
        defaults = {field.name: field.default for field in fields(self)}
        kept = {
            name: value
            for name, value in asdict(self).items()
            if name not in self.later or value != defaults[name]
        }
        return {"name": self.name, **kept}

    def _check_positive(self, *names: str) -> None:
        for name in names:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be a positive integer, not {value}")


def field_names(kind: type[Architecture]) -> list[str]:
    """Names of the fields of an architecture, in order."""
    return [field.name for field in fields(kind)]
