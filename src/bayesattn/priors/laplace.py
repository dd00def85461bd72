"""Laplace prior = ALiBi (Press, Smith and Lewis 2022, arXiv 2108.12409).

    log p(r) = -slope[h] · r

Up to its normaliser this is a Laplace density of scale 1/slope centred at the query. ALiBi's slopes
for a power of two of H heads are 2^(-8/H), 2^(-16/H), …, 2^-8; another H takes the slopes of the
power of two below, then every second slope of the power of two above.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bayesattn.priors.base import Prior, wide

# Slopes are at most 2^80: times any distance up to 10^10 and SSMax, that is finite in float32.
MAX_LOG2 = 80.0


STEEPEST, MILDEST = -1, -4
"""Base-2 logarithms of the slopes of local heads; half of the mass lies within 1 or 11 keys."""


def local_log2_slopes(num_heads: int, steepest: float = STEEPEST) -> Tensor:
    """[H] base-2 logarithms of slopes, evenly spread over three octaves."""
    return torch.linspace(steepest, steepest + MILDEST - STEEPEST, num_heads)


def alibi_log2_slopes(num_heads: int) -> Tensor:
    """[H] base-2 logarithms of ALiBi's slopes."""
    power = 1 << (num_heads.bit_length() - 1)
    steps = [-8 * (k + 1) / power for k in range(power)]
    steps += [-4 * (2 * k + 1) / power for k in range(num_heads - power)]
    return torch.tensor(steps)


class Laplace(Prior):
    """`log p(r) = -slope[h] · r`.

    `log2_slopes` [H] is a parameter if learned, else a buffer of the same name: a fixed prior
    loads into a learned one. The buffer is persistent, because Hugging Face builds models on the
    meta device and restores only tensors of the checkpoint. Base 2, because bfloat16 stores the
    logarithms of ALiBi's slopes (-1, -1.5, …) exactly, but not the slopes.

    Args:
        learned: train the slopes.
        slopes: one positive slope per head; ALiBi's if None.
    """

    name = "laplace"
    settings = ()
    log2_slopes: Tensor

    def __init__(
        self, num_heads: int, learned: bool = False, slopes: Sequence[float] | None = None
    ) -> None:
        super().__init__(num_heads)
        if slopes is not None and (
            len(slopes) != num_heads or not all(0 < float(s) < math.inf for s in slopes)
        ):
            raise ValueError(f"slopes must be {num_heads} positive numbers, one per head, or None")
        self.learned = learned
        self._given = None if slopes is None else [math.log2(float(s)) for s in slopes]
        if learned:
            self.log2_slopes = nn.Parameter(torch.empty(num_heads))
        else:
            self.register_buffer("log2_slopes", torch.empty(num_heads))
        self.reset_parameters()

    @classmethod
    def layer_options(cls, num_heads: int, local: bool) -> dict[str, Any]:
        """Slopes 2^-1 … 2^-4 where all heads are local."""
        slopes = [float(slope) for slope in local_log2_slopes(num_heads).exp2()]
        return {"slopes": slopes} if local else {}

    def initial_values(self) -> dict[str, Tensor]:
        if self._given is None:
            return {"log2_slopes": alibi_log2_slopes(self.num_heads)}
        return {"log2_slopes": torch.tensor(self._given)}

    @property
    def slopes(self) -> Tensor:
        """[H] slopes, in float32 or wider."""
        return self.log2_slopes.to(self._dtype).clamp(max=MAX_LOG2).exp2()

    def _log_prior(self, distance: Tensor) -> Tensor:
        return -self.slopes[:, None] * distance

    def _reach(self, drop: float) -> Tensor:
        return (drop / wide(self.log2_slopes).clamp(max=MAX_LOG2).exp2()).floor()

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, learned={self.learned}"
