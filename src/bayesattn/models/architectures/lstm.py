"""LSTM (Hochreiter & Schmidhuber 1997): torch.nn.LSTM, one module per layer to see every state."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from bayesattn.models.architectures.base import Architecture, Body, TunnelShape


@dataclass(frozen=True, kw_only=True)
class LSTM(Architecture):
    """Stacked LSTM; remembers in a state of fixed size, knows no positions."""

    name: ClassVar[str] = "lstm"

    def body(self, tunnel: TunnelShape) -> "LSTMBody":
        """See the class."""
        return LSTMBody(self.layers, self.width)


class LSTMBody(Body):
    """The same numbers as `nn.LSTM(width, width, layers)`."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.LSTM(width, width, batch_first=True) for _ in range(layers))

    def stages(self, x: Tensor) -> Iterator[Tensor]:
        """See `Body.stages`."""
        yield x
        for layer in self.layers:
            x, _ = layer(x)
            yield x
