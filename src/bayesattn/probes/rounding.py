"""Bounds on the rounding errors of a model's computation, entry by entry.

u is the unit round-off of the model's dtype, w that of float32, in which sums are kept. A sum of n
terms is off by n·w times the sum of their absolute values (Higham 2002, §3.1). Hence

    a score     s = c q·k of D terms is off by e = (D + 1)w c|q|·|k| + 5u|s| + u(max s - s): the
                sum; product, scale and three steps of a soft cap; the shift before exp
    a weight    α = softmax(s) lies, at worst, between α exp(±e) / (α exp(±e) + Σ' α' exp(∓e')) over
                all others, and is rounded itself by 2(n + 5)w + u of it
    a mean      Σ α v is off by ((n + 2)w + u) Σ α|v|
    a length    of a key after rotation by 8u of it: cosines, products and sums are rounded
    a product   Wx + b by ((n + 2)w + 2u) (|W||x| + |b|)

Norms bound e, since |q|·|k| ≤ ‖q‖‖k‖. In float32, with scores of ±200, a weight is known to some
thousandths. In bfloat16 e is 4 there: then a weight that is not nearly 0 or 1 is not known at all.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

SUM = torch.finfo(torch.float32).eps / 2
"""The round-off w of float32."""


class Gap(NamedTuple):
    """The entry with the largest ratio of difference and bound: both numbers."""

    found: float
    allowed: float = 0.0

    @property
    def ratio(self) -> float:
        """The ratio of difference and bound; infinite for a bound of 0, and for NaN."""
        if self.found == 0:
            return 0.0
        ratio = self.found / self.allowed if self.allowed else math.inf
        return math.inf if math.isnan(ratio) else ratio


def gap(x: Tensor, y: Tensor, allowed: Tensor | float = 0.0) -> Gap:
    """The largest difference of `x` and `y`, relative to `allowed`; shapes must be equal."""
    if x.shape != y.shape:
        return Gap(math.inf)
    off = (x.double() - y.double()).abs()
    bound = torch.as_tensor(allowed, dtype=off.dtype, device=off.device).expand_as(off).flatten()
    off = off.flatten()
    # NaN counts as the largest
    worst = int(torch.where(off == 0, 0.0, off / bound).argmax())
    return Gap(float(off[worst]), float(bound[worst]))


def unit(dtype: torch.dtype) -> float:
    """The unit round-off u."""
    return torch.finfo(dtype).eps / 2


def least(dtype: torch.dtype) -> float:
    """Below it there is only 0."""
    return torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps


def score_errors(q: Tensor, k: Tensor, scale: float, u: float) -> Tensor:
    """Errors e of scores [..., T, S], for q [..., T, D] and k [..., S, D]."""
    q, k = q.double(), k.double() * scale
    size, score = q.abs() @ k.abs().mT, q @ k.mT
    shift = (score.amax(-1, keepdim=True) - score).clamp(min=0)
    return (q.shape[-1] + 1) * SUM * size + 5 * u * score.abs() + u * shift


def weight_bounds(weights: Tensor, errors: Tensor) -> tuple[Tensor, Tensor]:
    """Bounds of softmax `weights` [..., S] if scores are off by `errors`."""
    up, down = ((sign * errors.clamp(max=300)).exp() * weights for sign in (1, -1))
    others = [(x.sum(-1, keepdim=True) - x).clamp(min=0) for x in (up, down)]
    low, high = (a / (a + b).clamp(min=1e-300) for a, b in ((down, others[0]), (up, others[1])))
    return low, high


def weight_rounding(count: int, u: float) -> float:
    """Relative rounding error of a weight among `count`: ours in float64 plus the model's."""
    return 2 * (count + 5) * SUM + u


def mean_error(weights: Tensor, values: Tensor, u: float) -> Tensor:
    """Rounding error of `weights` [..., T, S] times `values` [..., S, D]."""
    return ((weights.shape[-1] + 2) * SUM + u) * (weights @ values.abs())
