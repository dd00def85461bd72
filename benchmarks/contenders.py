"""The ways to compute attention that the benchmark lets run against each other."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, scaled_dot_product_attention

from bayesattn.attention import SSMax, attend
from bayesattn.priors import GeneralizedGaussian, Laplace, Prior

Mode = Literal["forward", "backward", "decode"]
PriorName = Literal["ggd", "mixed", "local", "alibi", "uniform", "gates", "score"]
Temperature = Literal["none", "content", "content+prior", "horizon"]
Attention = Callable[[Tensor, Tensor, Tensor], Tensor]

MODES: tuple[Mode, ...] = get_args(Mode)
PRIORS: tuple[PriorName, ...] = get_args(PriorName)
TEMPERATURES: tuple[Temperature, ...] = get_args(Temperature)
REFERENCE = "sdpa"
KERNELS = (REFERENCE, "strided", "skipping", "dense bias", "flex", "blocked")
_HORIZON = 128
_SCORE: PriorName = "score"
_ANY = 1 << 30


@dataclass(frozen=True)
class Contender:
    """One kernel with one prior and temperature."""

    kernel: str
    prior: PriorName = "ggd"
    ssmax: Temperature = "none"

    @property
    def name(self) -> str:
        """Unique among the contenders."""
        return REFERENCE if self.kernel == REFERENCE else f"{self.kernel}/{self.prior}/{self.ssmax}"

    @property
    def exists(self) -> bool:
        """Whether the kernel is one for the prior and the temperature."""
        if self.prior == "score" or self.kernel == "blocked":
            return self.prior == "score" and self.kernel == "blocked" and self.ssmax == "none"
        if self.kernel == "dense bias" and self.ssmax != "none":
            return False
        return self.kernel == "strided" or self.prior != "gates"

    def limit(self, mode: Mode) -> int:
        """Longest sequence that is possible, fits into memory and is worth the wait."""
        limits = {"forward": _ANY, "backward": 1 << 16, "decode": _ANY}
        if self.kernel == "dense bias":
            limits |= {"forward": 8192, "backward": 4096}
        elif self.kernel == "flex":
            limits = {"forward": 16384, "backward": 0, "decode": 0}
        elif self.kernel == "skipping":
            limits |= {"backward": 0}
        elif self.kernel == "blocked":
            limits = {"forward": 16384, "backward": 16384, "decode": 0}
        return limits[mode]

    def build(
        self, shape: Sequence[int], tolerance: float
    ) -> tuple[Attention, list[Tensor], "Exact"]:
        """The attention for keys of a shape, its trained tensors, and the same thing exactly."""
        options, learned = _options(self.prior, shape)
        if self.ssmax != "none":
            horizon = _HORIZON if self.ssmax == "horizon" else None
            scope = "content" if self.ssmax == "content" else "content+prior"
            options["ssmax"] = ssmax = SSMax(shape[1], scope=scope, horizon=horizon)
            learned.append(ssmax.scale)
        exact = Exact(options)
        if self.kernel == REFERENCE:
            return _plain, learned, exact
        if self.kernel == "dense bias":
            return _dense_bias(options["prior"]), learned, exact
        if self.kernel == "skipping":
            return (
                lambda q, k, v: attend(q, k, v, tolerance=tolerance, **options).output,
                learned,
                exact,
            )
        whole: dict[str, Any] = {**options, "kernel": self.kernel}
        return lambda q, k, v: attend(q, k, v, **whole), learned, exact


@dataclass(frozen=True)
class Exact:
    """The definition in float64, for a few query rows: what an error is measured against."""

    options: dict[str, Any]
    """Of attend."""

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, rows: list[int]) -> Tensor:
        """Rows of the exact output, each as a one-row problem against its own past."""
        k, v = k.double(), v.double()
        out = [
            attend(
                q[:, :, row : row + 1].double(),
                k,
                v,
                offset=row if q.shape[2] > 1 else None,
                kernel="dense",
                **self.options,
            )
            for row in rows
        ]
        return torch.cat(out, dim=2)


def _priors_of(kernel: str, priors: Sequence[PriorName]) -> list[PriorName]:
    return [*priors, _SCORE] if kernel == "blocked" else [*priors]


def contenders(
    kernels: Sequence[str], priors: list[PriorName], temperatures: list[Temperature]
) -> list[Contender]:
    """Plain attention, and whatever there is of the kernels with these priors."""
    found = [
        Contender(kernel, prior, temperature)
        for kernel in kernels
        if kernel != REFERENCE
        for prior in _priors_of(kernel, priors)
        for temperature in temperatures
    ]
    return [Contender(REFERENCE, "uniform"), *(c for c in found if c.exists)]


def _options(name: PriorName, shape: Sequence[int]) -> tuple[dict[str, Any], list[Any]]:
    """Arguments of attend and what of them is trained."""
    batch, heads, length, _ = shape
    if name == "gates":
        gates = _gates(batch, heads, length)
        return {"forget": gates}, [gates]
    if name == "score":
        slopes = torch.linspace(-1, -4, heads).exp2().requires_grad_()
        return {"score_mod": lambda s, b, h, i, j: s - slopes[h] * (i - j)}, [slopes]
    prior: Prior
    if name == "ggd":
        prior = _trained(heads)
    elif name == "alibi":
        prior = Laplace(heads, learned=True)
    else:
        prior = GeneralizedGaussian(heads, init=name)
    return {"prior": prior}, [p for p in prior.parameters() if p.requires_grad]


def _trained(heads: int) -> GeneralizedGaussian:
    """A prior as training leaves it: shapes from negative to Gaussian, so no head is trivial."""
    prior = GeneralizedGaussian(heads)
    with torch.no_grad():
        prior.theta_beta.copy_(torch.linspace(-0.6, 2.0, heads))
        prior.theta_alpha.fill_(math.log(0.1))
    return prior


def _gates(batch: int, heads: int, length: int) -> Tensor:
    """Logarithms of gates that remember from 16 tokens to all of them, head by head."""
    draw = torch.Generator().manual_seed(length)
    times = torch.linspace(math.log(16), math.log(max(length, 32)), heads).exp()
    bias = -torch.expm1(1 / times).log()[:, None]
    noise = torch.randn(batch, heads, length, generator=draw)
    return logsigmoid(bias + noise / 2).requires_grad_()


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
