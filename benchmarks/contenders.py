"""The ways to compute attention that the benchmark lets run against each other."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from bayesattn.attention import SSMax, attend
from bayesattn.priors import GeneralizedGaussian, Laplace, Prior

Mode = Literal["forward", "backward", "decode"]
Attention = Callable[[Tensor, Tensor, Tensor], Tensor]

MODES: tuple[Mode, ...] = get_args(Mode)
REFERENCE = "sdpa"
_ANY = 1 << 30


@dataclass(frozen=True)
class Contender:
    """One kernel with one prior and temperature."""

    kernel: str
    prior: Literal["uniform", "ggd", "laplace"] = "ggd"
    ssmax: Literal["none", "content", "content+prior"] = "none"

    @property
    def name(self) -> str:
        """Unique among the contenders."""
        return REFERENCE if self.kernel == REFERENCE else f"{self.kernel}/{self.prior}/{self.ssmax}"

    def limit(self, mode: Mode) -> int:
        """Longest sequence that is possible, fits into memory and is worth the wait."""
        limits = {"forward": _ANY, "backward": 16384, "decode": _ANY}
        if self.kernel == "dense bias":
            limits |= {"forward": 8192, "backward": 4096}
        elif self.kernel == "flex":
            limits = {"forward": 16384, "backward": 0, "decode": 0}
        elif self.kernel == "skipping":
            limits |= {"backward": 0}
        return limits[mode]

    def build(self, heads: int, tolerance: float) -> tuple[Attention, list[Tensor], "Exact"]:
        """The attention, its trained parameters, and the same thing exactly."""
        prior = _prior(self.prior, heads)
        ssmax = None if self.ssmax == "none" else SSMax(heads, scope=self.ssmax)
        learned: list[Tensor] = []
        if prior is not None:
            learned += [p for p in prior.parameters() if p.requires_grad]
        learned += [] if ssmax is None else [ssmax.scale]
        exact = Exact(prior, ssmax)
        if self.kernel == REFERENCE:
            return _plain, learned, exact
        if self.kernel == "dense bias":
            assert prior is not None
            return _dense_bias(prior), learned, exact
        if self.kernel == "skipping":
            return _skipping(prior, ssmax, tolerance), learned, exact
        kernel: Literal["strided", "flex"] = "flex" if self.kernel == "flex" else "strided"
        return lambda q, k, v: attend(q, k, v, prior, ssmax=ssmax, kernel=kernel), learned, exact


CONTENDERS = (
    Contender(REFERENCE, "uniform"),
    Contender("strided"),
    Contender("strided", ssmax="content"),
    Contender("strided", ssmax="content+prior"),
    Contender("skipping", "laplace"),
    Contender("dense bias"),
    Contender("flex"),
    Contender("flex", ssmax="content+prior"),
)


@dataclass(frozen=True)
class Exact:
    """The definition in float64, for a few query rows: what an error is measured against."""

    prior: Prior | None
    ssmax: SSMax | None

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, rows: list[int]) -> Tensor:
        """Rows of the exact output, each as a one-row problem against its own past."""
        k, v = k.double(), v.double()
        out = [
            attend(
                q[:, :, row : row + 1].double(),
                k,
                v,
                self.prior,
                ssmax=self.ssmax,
                offset=row if q.shape[2] > 1 else None,
                kernel="dense",
            )
            for row in rows
        ]
        return torch.cat(out, dim=2)


def _prior(name: str, heads: int) -> Prior | None:
    """A prior as training leaves it: shapes from negative to Gaussian, so no head is trivial."""
    if name == "uniform":
        return None
    if name == "laplace":
        return Laplace(heads)
    prior = GeneralizedGaussian(heads)
    with torch.no_grad():
        prior.theta_beta.copy_(torch.linspace(-0.6, 2.0, heads))
        prior.theta_alpha.fill_(math.log(0.1))
    return prior


def _plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return scaled_dot_product_attention(q, k, v, is_causal=q.shape[2] > 1)


def _dense_bias(prior: Prior) -> Attention:
    """What one writes without this package: the bias as a matrix, into SDPA."""

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        end, queries = k.shape[2], q.shape[2]
        i, j = torch.arange(end - queries, end)[:, None], torch.arange(end)[None, :]
        bias = prior.log_prior((i - j).clamp(min=0).flatten()).view(-1, queries, end)
        bias = bias.masked_fill(j > i, float("-inf"))
        return scaled_dot_product_attention(q, k, v, attn_mask=bias[None])

    return run


def _skipping(prior: Prior | None, ssmax: SSMax | None, tolerance: float) -> Attention:
    return lambda q, k, v: attend(q, k, v, prior, ssmax=ssmax, tolerance=tolerance).output
