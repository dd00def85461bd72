"""bam-uniform and bam-laplace: two ways of attending are the same, but for rounding.

    uniform   softmax_j(q_i·k_j/√d) = likelihood_ij · prior_ij · Z_i,  prior_ij = 1/n_i for j <= i
    Laplace   softmax_j(q_i·k_j/√d - m·(i-j)) ∝ exp(q_i·k_j/√d) · Laplace(j - i; 0, 1/m)

On the left stands PyTorch's own causal attention, or ALiBi as published (Press, Smith and Lewis
2022, arXiv 2108.12409), which shares no code with `bayesattn`. On the right stands `attend` by its
dense kernel, the definition: a faster one may well call PyTorch's attention itself.

Differences between outputs are taken relative to the largest value, max |v|: an output is a mean of
values, so rounding grows with them, and multiplying all values by ten must not change a verdict.
Undivided, with values up to 4, the float32 differences reach 1.2e-6 and would miss a tolerance of
1e-6; PyTorch's own float32 attention is 0.9e-6 from its float64 attention on the same inputs, so
that would judge the rounding and not the claim.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from itertools import product
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.distributions import Laplace as LaplaceDensity
from torch.nn.functional import scaled_dot_product_attention

from bayesattn import attend
from bayesattn.attention import Decomposed
from bayesattn.claims.panels import panels
from bayesattn.claims.registry import register
from bayesattn.ledger.study import Picture, Recipe, Study, Tier, Value
from bayesattn.ledger.typed import Stored
from bayesattn.priors import GeneralizedGaussian, Laplace, Prior, Uniform

TOLERANCES = {"float32": 1e-6, "float64": 1e-12}
FLOOR = 1e-18


class Comparison(NamedTuple):
    """Differences that must vanish, by name, and one that must not."""

    errors: Mapping[str, float]
    control: float


class Differences(Stored):
    """The largest differences in one precision, at each length."""

    errors: Mapping[str, list[float]]
    """By what is compared."""
    control: list[float]
    """The weakest control, which is the one that counts."""


class IdentityRecipe(Recipe):
    """Inputs to compare on: each length with each head count."""

    lengths: tuple[int, ...]
    head_counts: tuple[int, ...]
    head_dim: int = 32


class IdentityStudy(Study[IdentityRecipe, Mapping[str, Differences]]):
    """A study of `compare`, which says how far apart two ways of attending are."""

    stated: ClassVar[Mapping[str, Sequence[str]]]
    """What is compared, by statement."""

    @abstractmethod
    def compare(self, q: Tensor, k: Tensor, v: Tensor) -> Comparison:
        """Compare on q, k, v [1, H, T, D], all of one dtype."""

    def measure(self, tier: Tier, seed: int) -> Mapping[str, Differences]:
        recipe = self.recipes[tier]
        generator = torch.Generator().manual_seed(seed)
        compared: dict[str, list[list[Comparison]]] = {dtype: [] for dtype in TOLERANCES}
        for length in recipe.lengths:
            for found in compared.values():
                found.append([])
            for heads, dtype in product(recipe.head_counts, TOLERANCES):
                shape = (3, 1, heads, length, recipe.head_dim)
                inputs = torch.randn(shape, generator=generator, dtype=torch.float64)
                with torch.no_grad():
                    compared[dtype][-1].append(self.compare(*inputs.to(getattr(torch, dtype))))
        return {
            dtype: Differences(
                errors={
                    name: [max(one.errors[name] for one in at) for at in found]
                    for name in found[0][0].errors
                },
                control=[min(one.control for one in at) for at in found],
            )
            for dtype, found in compared.items()
        }

    def values(self, tier: Tier, one: Mapping[str, Differences]) -> Mapping[str, Value]:
        """One statement for each thing compared in double precision, one for single precision."""
        double, single = one["float64"], one["float32"]
        errors = {name: max(own) for name, own in double.errors.items()}
        stated = {
            name: Value(max(errors[part] for part in parts), min(double.control))
            for name, parts in self.stated.items()
        }
        worst = max(max(own) for own in single.errors.values())
        return {**stated, "single": Value(worst, min(single.control))}

    def draw(self, tier: Tier, found: Mapping[int, Mapping[str, Differences]]) -> list[Picture]:
        lengths = self.recipes[tier].lengths
        figure, (axes,) = panels(size=(7, 3.6))
        controls = _worst([one["float32"] for one in found.values()]).control
        axes.plot(lengths, controls, "s--", color="C2", label="control: must be large")
        for colour, (dtype, tolerance) in enumerate(TOLERANCES.items()):
            rows = _worst([one[dtype] for one in found.values()]).errors.values()
            # An exact zero has no place on a logarithmic axis: show it at the bottom.
            worst = [max(*column, FLOOR) for column in zip(*rows, strict=True)]
            axes.plot(lengths, worst, "o-", color=f"C{colour}", label=f"difference, {dtype}")
            axes.axhline(tolerance, color=f"C{colour}", linestyle=":", linewidth=1)
            axes.annotate(f"tolerance {tolerance:.0e}", (lengths[0], 2 * tolerance), fontsize=8)
        axes.set(
            xscale="log",
            yscale="log",
            xlabel="sequence length",
            ylabel="largest relative difference",
            ylim=(FLOOR, 100),
        )
        axes.set_xticks(lengths, [str(length) for length in lengths])
        axes.minorticks_off()
        figure.legend(loc="outside upper center", ncols=3, fontsize=8)
        caption = (
            "Largest difference over seeds and head counts, relative to the largest value, by "
            "sequence length; dotted: what rounding may cause."
        )
        alt = (
            "Over the sequence length: the difference in float32 and in float64, each with its "
            "dotted tolerance, and above them the control, which must be large."
        )
        return [Picture("differences", figure, caption, alt)]


def relative_difference(output: Tensor, expected: Tensor, v: Tensor) -> float:
    """Largest |output - expected|, relative to the largest |v|."""
    return ((output - expected).abs().max() / v.abs().max()).item()


def _difference(q: Tensor, k: Tensor, v: Tensor, prior: Prior, expected: Tensor) -> float:
    output = attend(q, k, v, prior.to(q.dtype), kernel="dense")
    assert isinstance(output, Tensor)
    return relative_difference(output, expected, v)


@register("bam-uniform")
class BamUniform(IdentityStudy):
    """NoPE, the uniform prior, GGD with beta = 0, and the decomposition of Theorem 1."""

    stated: ClassVar = {"uniform": ("uniform prior", "GGD with shape 0"), "theorem": ("Theorem 1",)}

    def compare(self, q: Tensor, k: Tensor, v: Tensor) -> Comparison:
        heads = q.shape[1]
        nope = scaled_dot_product_attention(q, k, v, is_causal=True)
        flat = GeneralizedGaussian(heads).to(q.dtype)
        flat.theta_alpha.copy_(q[0, :, 0, 0])  # any scale will do
        product, without_evidence = theorem(q, k, v)

        errors = {
            "uniform prior": _difference(q, k, v, Uniform(heads), nope),
            "GGD with shape 0": _difference(q, k, v, flat, nope),
            "Theorem 1": product,
        }
        wrong = _difference(q, k, v, Laplace(heads, slopes=[1.0] * heads), nope)
        return Comparison(errors, min(wrong, without_evidence))


def theorem(q: Tensor, k: Tensor, v: Tensor) -> tuple[float, float]:
    """Largest violation of posterior = likelihood · prior · evidence, under a random prior.

    Second, as a control, the same with the evidence left out.
    """
    heads, length = q.shape[1], q.shape[2]
    prior = GeneralizedGaussian(heads).to(q.dtype)
    prior.theta_alpha.copy_(q[0, :, 0, 0])
    prior.theta_beta.copy_(k[0, :, 0, 0])
    parts = attend(q, k, v, prior, decompose=True)
    assert isinstance(parts, Decomposed)

    distance = torch.arange(length)[:, None] - torch.arange(length)
    future = distance < 0
    content = q @ k.mT / q.shape[-1] ** 0.5
    bias = prior.log_prior(torch.arange(length))[:, distance.clamp(min=0)]
    likelihood, belief, posterior = (
        scores.masked_fill(future, -torch.inf).softmax(-1)
        for scores in (content, bias[None], content + bias)
    )
    product = parts.likelihood * parts.prior
    error = max(
        _largest(parts.likelihood - likelihood),
        _largest(parts.prior - belief),
        _largest(parts.posterior - posterior),
        _largest(product * parts.evidence - posterior),
    )
    return error, _largest(product - posterior)


def _largest(difference: Tensor) -> float:
    return difference.abs().max().item()


@register("bam-laplace")
class BamLaplace(IdentityStudy):
    """ALiBi against the Laplace prior, the GGD with beta = 1, and Bayes' rule with the density."""

    stated: ClassVar = {"laplace": ("Laplace prior", "GGD with shape 1", "Bayes' rule")}

    def compare(self, q: Tensor, k: Tensor, v: Tensor) -> Comparison:
        heads = q.shape[1]
        published = alibi(q, k, v)

        def ggd(shape: float) -> GeneralizedGaussian:
            prior = GeneralizedGaussian(heads).to(q.dtype)
            prior.theta_alpha.copy_(torch.tensor(alibi_slopes(heads), dtype=torch.float64).log())
            prior.theta_beta.fill_(shape)
            return prior

        errors = {
            "Laplace prior": _difference(q, k, v, Laplace(heads), published),
            "GGD with shape 1": _difference(q, k, v, ggd(1), published),
            "Bayes' rule": relative_difference(bayes(q, k, v), published, v),
        }
        return Comparison(errors, _difference(q, k, v, ggd(2), published))


def alibi_slopes(heads: int) -> list[float]:
    """The slopes of ALiBi's published code: geometric, interleaved if heads is no power of two."""
    if math.log2(heads).is_integer():
        start = 2 ** (-(2 ** -(math.log2(heads) - 3)))
        return [start * start**head for head in range(heads)]
    power = 2 ** math.floor(math.log2(heads))
    return alibi_slopes(power) + alibi_slopes(2 * power)[0::2][: heads - power]


def alibi(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention with ALiBi's bias matrix added to the scores of q, k [1, H, T, D]."""
    length = q.shape[2]
    slopes = torch.tensor(alibi_slopes(q.shape[1]), dtype=q.dtype)[:, None, None]
    relative = torch.arange(length)[None, :] - torch.arange(length)[:, None]
    causal = torch.full((length, length), -torch.inf, dtype=q.dtype).triu(1)
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]) + slopes * relative + causal
    return torch.softmax(scores, dim=-1) @ v


def bayes(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The posterior mean of v under Laplace densities of scale 1/slope centred at the query."""
    length = q.shape[2]
    scale = 1 / torch.tensor(alibi_slopes(q.shape[1]), dtype=q.dtype)[:, None, None]
    relative = torch.arange(length)[None, :] - torch.arange(length)[:, None]
    prior = LaplaceDensity(torch.zeros_like(scale), scale).log_prob(relative.to(q.dtype)).exp()
    content = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    likelihood = (content - content.amax(-1, keepdim=True)).exp()
    joint = (likelihood * prior).tril()
    return joint / joint.sum(-1, keepdim=True) @ v


def _worst(found: Sequence[Differences]) -> Differences:
    """Over seeds, for each length."""
    return Differences(
        errors={
            name: [max(at) for at in zip(*(one.errors[name] for one in found), strict=True)]
            for name in found[0].errors
        },
        control=[min(at) for at in zip(*(one.control for one in found), strict=True)],
    )
