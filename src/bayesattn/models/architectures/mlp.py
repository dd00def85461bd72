"""MLPs: predictors without attention and without a recurrent state.

    layer      x + mix(norm(x)), then x + down(gelu(up(norm(x))))

`context` says which part of the past `mix` sees:

    position      none: there is no mix, every position is predicted alone
    flattened     all embeddings up to the position, side by side in one row, zeros after it; in the
                  first layer only, and only up to the length of the tunnel
    mean          the running mean of the states up to the position, beside the state itself
    convolution   the last `kernel` states

The last three are fair controls, because a network without context must fail.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor, nn

from bayesattn.models.architectures.base import Architecture, Body
from bayesattn.tunnels import Tunnel

Context = Literal["position", "flattened", "mean", "convolution"]


@dataclass(frozen=True, kw_only=True)
class MLP(Architecture):
    """Residual feed-forward layers; `context` says which part of the past they see."""

    name: ClassVar[str] = "mlp"

    context: Context = "position"
    """What a position sees: itself, all positions up to it, their mean, or the last few."""
    intermediate_size: int | None = None
    """Hidden width of a feed-forward layer; four times the width if not given."""
    kernel: int | None = None
    """Positions seen by one convolution; by default the fewest with which the layers see all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_positive("intermediate_size", "kernel")
        if self.context not in get_args(Context):
            raise ValueError(
                f"unknown context {self.context!r}; choose one of {', '.join(get_args(Context))}"
            )
        if self.kernel is not None and self.context != "convolution":
            raise ValueError(f"kernel needs context 'convolution', not {self.context!r}")

    def body(self, tunnel: Tunnel) -> "MLPBody":
        inner = self.intermediate_size or 4 * self.width
        return MLPBody(
            MLPLayer(self.width, inner, self._mix(layer, tunnel.positions))
            for layer in range(self.layers)
        )

    def _mix(self, layer: int, positions: int) -> nn.Module | None:
        match self.context:
            case "flattened" if layer == 0:
                return Flatten(self.width, positions)
            case "mean":
                return Mean(self.width)
            case "convolution":
                kernel = self.kernel or 1 + math.ceil((positions - 1) / self.layers)
                return Convolution(self.width, kernel)
            case _:
                return None


class MLPBody(Body):
    """Layers, one after the other."""

    def __init__(self, layers: Iterator["MLPLayer"]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)


class MLPLayer(nn.Module):
    """Pre-norm residual layer: context (if any), then feed-forward."""

    def __init__(self, width: int, inner: int, mix: nn.Module | None) -> None:
        super().__init__()
        self.mix = None if mix is None else nn.Sequential(nn.RMSNorm(width, eps=1e-5), mix)
        self.feed = nn.Sequential(
            nn.RMSNorm(width, eps=1e-5), nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        if self.mix is not None:
            x = x + self.mix(x)
        return x + self.feed(x)


class Flatten(nn.Module):
    """linear([x_1 … x_p, 0 … 0]) at every position p, as a running sum of W_j x_j."""

    def __init__(self, width: int, positions: int) -> None:
        super().__init__()
        self.positions = positions
        self.linear = nn.Linear(positions * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, D] to [B, T, D]; refuses a T beyond the slots."""
        length, width = x.shape[1:]
        if length > self.positions:
            raise ValueError(
                f"the flattened mlp has {self.positions} slots, not {length}; "
                "it predicts nothing beyond the length it was built for"
            )
        slots = self.linear.weight.view(width, self.positions, width)[:, :length]
        each = torch.bmm(x.transpose(0, 1), slots.permute(1, 2, 0))
        return each.cumsum(dim=0).transpose(0, 1) + self.linear.bias


class Mean(nn.Module):
    """linear([x_p, mean of x_1 … x_p])."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        count = torch.arange(1, x.shape[1] + 1, device=x.device, dtype=x.dtype)
        return self.linear(torch.cat((x, x.cumsum(dim=1) / count[:, None]), dim=-1))


class Convolution(nn.Module):
    """Causal convolution: Σ_d W_d x_{p-d} over the last `kernel` positions, zeros before them."""

    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(width, width, kernel)

    def forward(self, x: Tensor) -> Tensor:
        (kernel,) = self.convolution.kernel_size
        padded = nn.functional.pad(x.transpose(1, 2), (kernel - 1, 0))
        return self.convolution(padded).transpose(1, 2)
