"""Recurrent architectures with a state of fixed size: LSTM and Mamba-2.

LSTM (Hochreiter & Schmidhuber 1997) is torch.nn.LSTM, one module per layer to read every state.
Mamba-2 (Dao & Gu 2024, arXiv 2405.21060) is the layers of transformers' `Mamba2Model`:

    h_t = exp(Δ_t A) h_{t-1} + Δ_t B_t x_t,   y_t = C_t h_t       with Δ, B, C read from the input

Why Mamba-2 and not Mamba: without GPU kernels, transformers runs Mamba as a Python loop over time,
whose backward pass is quadratic in the length, and Mamba-2 as matrix products over chunks.
"""

import logging
import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn
from transformers import Mamba2Config, Mamba2Model

from bayesattn.models.architectures.base import Architecture, Body
from bayesattn.tunnels import Tunnel

_CHUNK = 48  # longest chunk: work grows with its square, padding and overhead with their number


@dataclass(frozen=True, kw_only=True)
class LSTM(Architecture):
    """Stacked LSTM: a state of fixed size and no position encoding."""

    name: ClassVar[str] = "lstm"

    def body(self, tunnel: Tunnel) -> "LSTMBody":
        return LSTMBody(self.layers, self.width)


class LSTMBody(Body):
    """The same numbers as `nn.LSTM(width, width, layers)`."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.LSTM(width, width, batch_first=True) for _ in range(layers))

    def step(self, layer: nn.Module, x: Tensor) -> Tensor:
        return layer(x)[0]


@dataclass(frozen=True, kw_only=True)
class Mamba(Architecture):
    """Selective state-space model: a state of fixed size with input-dependent forgetting."""

    name: ClassVar[str] = "mamba"

    state: int = 16
    """Size of the state of each channel."""
    conv: int = 4
    """Length of the causal convolution before the state."""
    expand: int = 2
    """Channels per unit of width."""
    heads: int = 4
    """Groups of channels with a common forgetting rate; expand · width must be a multiple."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_positive("state", "conv", "expand", "heads")
        if self.expand * self.width % self.heads:
            raise ValueError(
                f"expand {self.expand} times width {self.width} is not a multiple of "
                f"heads {self.heads}"
            )

    def width_multiple(self) -> int:
        return self.heads // math.gcd(self.heads, self.expand)

    def body(self, tunnel: Tunnel) -> "MambaBody":
        chunks = math.ceil(tunnel.positions / _CHUNK)
        config = Mamba2Config(
            vocab_size=1,  # the predictor embeds the inputs, so the body needs no token table
            hidden_size=self.width,
            num_hidden_layers=self.layers,
            state_size=self.state,
            conv_kernel=self.conv,
            expand=self.expand,
            num_heads=self.heads,
            head_dim=self.expand * self.width // self.heads,
            n_groups=1,
            chunk_size=math.ceil(tunnel.positions / chunks),
            use_cache=False,
            pad_token_id=None,
            bos_token_id=None,
            eos_token_id=None,
        )
        return MambaBody(config)


class MambaBody(Body):
    """Layers of a `Mamba2Model`; its token table and final norm are left out."""

    def __init__(self, config: Mamba2Config) -> None:
        super().__init__()
        self.layers = Mamba2Model(config).layers

    def step(self, layer: nn.Module, x: Tensor) -> Tensor:
        if x.device.type != "cpu":
            return layer(x)
        logger = logging.getLogger("transformers.integrations.hub_kernels")
        logger.addFilter(_no_advice)
        try:
            return layer(x)
        finally:
            logger.removeFilter(_no_advice)


def _no_advice(record: logging.LogRecord) -> bool:
    """On a CPU drop the warning about missing kernels: they are for GPUs only."""
    return "falling back to its reference PyTorch implementation" not in record.getMessage()
