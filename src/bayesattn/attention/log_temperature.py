"""A temperature that grows with the logarithm of the length beyond some number of keys.

    factor_i = 1 + a · ln(floor(n_i / n0) + 1)        LogTemperature, not learned (Llama 4)
    factor_i = 1 + a[h] · ln(max(n_i / n0, 1))        HeadTemperature

n_i is the number of keys that query i sees. The factor is 1 below n0 keys. Beyond, the first
formula rises in steps. Llama 4 has a = 0.1 and n0 = 8,192 in its layers without positions.
"""

import math

import torch
from torch import Tensor, nn

from bayesattn.checks import at_least


class LogTemperature(nn.Module):
    """The content of a query that sees n keys times `1 + scale · ln(floor(n / start) + 1)`.

    It has no trained parameters, and all heads share it.

    Args:
        num_heads: query heads.
        scale: a of the formula.
        start: n0 of the formula, such as the training length.
    """

    scope = "content"
    frozen: tuple[str, ...] = ()

    def __init__(self, num_heads: int, scale: float = 0.1, start: int = 8192) -> None:
        super().__init__()
        self.num_heads = at_least("num_heads", num_heads, 1)
        check_scale(scale)
        self.scale, self.start = scale, at_least("start", start, 1)

    def factor(self, num_visible: Tensor, dtype: torch.dtype) -> Tensor:
        """[B, H, T] for num_visible [B, T]."""
        steps = num_visible.div(self.start, rounding_mode="floor").to(dtype)
        return (1 + self.scale * steps.log1p())[:, None].expand(-1, self.num_heads, -1)

    def extra_repr(self) -> str:
        return f"num_heads={self.num_heads}, scale={self.scale}, start={self.start}"


class HeadTemperature(LogTemperature):
    """The content times `1 + scale[h] · ln(max(n / start, 1))`, one learned number per head.

    The factor is 1 up to `start` keys, for any `scale`.
    """

    scale: nn.Parameter

    def __init__(self, num_heads: int, start: int) -> None:
        super().__init__(num_heads, 0.0, start)
        self.scale = nn.Parameter(torch.zeros(num_heads))

    def factor(self, num_visible: Tensor, dtype: torch.dtype) -> Tensor:
        beyond = (num_visible.to(dtype) / self.start).clamp(min=1).log()
        return 1 + self.scale.to(dtype)[:, None] * beyond[:, None]

    def extra_repr(self) -> str:
        return f"num_heads={self.num_heads}, start={self.start}"


def check_scale(scale: float) -> None:
    """Refuse scales that would reverse the order of the scores."""
    if not 0 <= scale < math.inf:
        raise ValueError(f"the scale of a log-temperature must be at least 0, not {scale}")
