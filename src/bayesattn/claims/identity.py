"""Claims that two ways of attending are the same: every difference must be rounding.

A subclass compares on given queries, keys and values; this runs it over seeds, lengths, head counts
and both precisions, and judges by the rule for exact identities.

Differences between outputs are taken relative to the largest value, max |v|: an output is a mean of
values, so rounding grows with them, and multiplying all values by ten must not change a verdict.
Undivided, with values up to 4, the float32 differences reach 1.2e-6 and would miss a tolerance of
1e-6; PyTorch's own float32 attention is 0.9e-6 from its float64 attention on the same inputs, so
that would judge the rounding and not the claim.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from bayesattn.ledger.study import Picture, Recipe, Study, Tier, Verdict
from bayesattn.stats import Judgement, Outcome, judge_all, judge_identity

TOLERANCES = {"float32": 1e-6, "float64": 1e-12}
FLOOR = 1e-18


class Comparison(NamedTuple):
    """Differences that must vanish, by name, and one that must not."""

    errors: Mapping[str, float]
    control: float


@dataclass(frozen=True, kw_only=True)
class Differences:
    """The largest differences in one precision, at each length."""

    errors: Mapping[str, list[float]]
    """By what is compared."""
    control: list[float]
    """The weakest control, which is the one that counts."""


@dataclass(frozen=True, kw_only=True)
class IdentityRecipe(Recipe):
    """Inputs to compare on: each length with each head count."""

    lengths: tuple[int, ...]
    head_counts: tuple[int, ...]
    head_dim: int = 32


def relative_difference(output: Tensor, expected: Tensor, v: Tensor) -> float:
    """Largest |output - expected|, relative to the largest |v|."""
    return ((output - expected).abs().max() / v.abs().max()).item()


class IdentityStudy(Study[IdentityRecipe, Mapping[str, Differences]]):
    """A study of `compare`, which says how far apart two ways of attending are."""

    @abstractmethod
    def compare(self, q: Tensor, k: Tensor, v: Tensor) -> Comparison:
        """Compare on q, k, v [1, H, T, D], all of one dtype."""

    def measure(self, tier: Tier, seed: int) -> Mapping[str, Differences]:
        """Differences over head counts, by precision."""
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

    def judge(self, tier: Tier, found: Mapping[int, Mapping[str, Differences]]) -> Verdict:
        """Every difference within its precision's tolerance, at every length and seed."""
        worst = {dtype: _worst([one[dtype] for one in found.values()]) for dtype in TOLERANCES}
        parts = {
            f"{name}, {dtype}": judge_identity(errors, worst[dtype].control, tolerance=tolerance)
            for dtype, tolerance in TOLERANCES.items()
            for name, errors in worst[dtype].errors.items()
        }
        judgement = judge_all(parts)
        null = min(worst["float32"].control)
        if judgement.outcome is Outcome.SUPPORTED:
            judgement = _summary(parts, null)
        return self.verdict(
            judgement,
            tier=tier,
            seeds=tuple(found),
            unit="largest relative difference",
            null=null,
        )

    def draw(self, tier: Tier, found: Mapping[int, Mapping[str, Differences]]) -> list[Picture]:
        """Differences by length: at rounding level, far below the control."""
        from matplotlib.figure import Figure

        lengths = self.recipes[tier].lengths
        figure = Figure(figsize=(7, 3.6), layout="constrained")
        axes = figure.add_subplot(xscale="log", yscale="log")
        controls = _worst([one["float32"] for one in found.values()]).control
        axes.plot(lengths, controls, "s--", color="C2", label="control: must be large")
        for colour, (dtype, tolerance) in enumerate(TOLERANCES.items()):
            rows = _worst([one[dtype] for one in found.values()]).errors.values()
            # An exact zero has no place on a logarithmic axis: show it at the bottom.
            worst = [max(*column, FLOOR) for column in zip(*rows, strict=True)]
            axes.plot(lengths, worst, "o-", color=f"C{colour}", label=f"difference, {dtype}")
            axes.axhline(tolerance, color=f"C{colour}", linestyle=":", linewidth=1)
            axes.annotate(f"tolerance {tolerance:.0e}", (lengths[0], 2 * tolerance), fontsize=8)
        axes.set(xlabel="sequence length", ylabel="largest relative difference", ylim=(FLOOR, 100))
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


def _worst(found: Sequence[Differences]) -> Differences:
    """Over seeds, for each length."""
    return Differences(
        errors={
            name: [max(at) for at in zip(*(one.errors[name] for one in found), strict=True)]
            for name in found[0].errors
        },
        control=[min(at) for at in zip(*(one.control for one in found), strict=True)],
    )


def _summary(parts: Mapping[str, Judgement], null: float) -> Judgement:
    """What a supported identity shows: the worst difference in each precision."""
    worst = {
        dtype: max(part.value for name, part in parts.items() if name.endswith(dtype))
        for dtype in TOLERANCES
    }
    shown = " and ".join(
        f"{worst[dtype]:.1e} in {dtype} (tolerance {tolerance:.0e})"
        for dtype, tolerance in TOLERANCES.items()
    )
    reason = f"No difference exceeds {shown}, while the control differs by at least {null:.2g}."
    return Judgement(Outcome.SUPPORTED, worst["float32"], None, reason)
