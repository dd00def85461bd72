"""geometry-keys: are the first layer's keys of different symbols orthogonal to each other?

    |cos| = mean over pairs of tokens i ≠ j of |k_i·k_j| / (‖k_i‖ ‖k_j‖),   k_i = W_K norm(e_i)

Keys are what attention receives, after the norm that the model really applies, per head. Random
directions of the same width are the null; signed means, which the papers also report, would be
about 0 for anything.
"""

from collections.abc import Mapping, Sequence

import torch

from bayesattn.claims.geometry_subjects import VARIANTS, GeometryStudy, listed, subject, training
from bayesattn.claims.registry import register
from bayesattn.ledger.study import Numbers, Picture, Tier, Verdict
from bayesattn.ledger.summaries import average, by_seed
from bayesattn.probes.keys import KeyFrame, measure_keys, pair_cosine
from bayesattn.stats import Outcome, judge_all, judge_below, judge_effect

PERMUTATIONS = 999


@register("geometry-keys")
class GeometryKeys(GeometryStudy[Numbers]):
    """Measures cosines between the keys of all symbols in trained bijection models."""

    def measure(self, tier: Tier, seed: int) -> Numbers:
        """Cosines of every head, with their nulls."""
        recipe = self.recipes[tier]
        found: dict[str, float | Sequence[float]] = {}
        for variant in VARIANTS:
            model, initial, tunnel = subject(training(tier, variant, seed))
            frames = measure_keys(
                model,
                tunnel,
                initial=initial,
                sequences=recipe.sequences,
                permutations=PERMUTATIONS,
            )
            for tokens in ("keys", "values"):
                own = [f for f in frames if (f.layer, f.tokens) == (0, tokens)]
                found |= _numbers(f"{variant}: {tokens}", own)
        return found

    def judge(self, tier: Tier, numbers: Mapping[int, Numbers]) -> Verdict:
        """Against random directions first, then against the start of training."""
        random = average(numbers, f"{VARIANTS[0]}: keys random")
        parts = {
            f"{variant}, against random directions": judge_below(
                by_seed(numbers, f"{variant}: keys |cos|"), limit=random
            )
            for variant in VARIANTS
        }
        judgement = judge_all(parts)
        if judgement.outcome is Outcome.SUPPORTED:
            gains = {
                variant: [
                    start - end
                    for start, end in zip(
                        by_seed(numbers, f"{variant}: keys untrained"),
                        by_seed(numbers, f"{variant}: keys |cos|"),
                        strict=True,
                    )
                ]
                for variant in VARIANTS
            }
            later = {
                f"{variant}, untrained minus trained": judge_effect(values)
                for variant, values in gains.items()
            }
            judged = judge_all(later)
            judgement = judgement._replace(outcome=judged.outcome, reason=judged.reason, p=judged.p)
        best = ", ".join(
            f"{average(numbers, f'{variant}: keys best head'):.3g} if {variant}"
            for variant in VARIANTS
        )
        chance = average(numbers, f"{VARIANTS[0]}: keys best of random heads")
        reason = (
            f"{judgement.reason} The most orthogonal head has {best}; "
            f"the best of as many random heads {chance:.3g}."
        )
        return self.verdict(
            judgement._replace(reason=reason),
            tier=tier,
            seeds=tuple(numbers),
            unit="mean |cos| of first-layer keys",
            null=random,
        )

    def draw(self, tier: Tier, numbers: Mapping[int, Numbers]) -> list[Picture]:
        """Every head of every seed, before and after training."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(8, 3), layout="constrained")
        for axes, variant in zip(figure.subplots(1, 2, sharey=True), VARIANTS, strict=True):
            for column, tokens in enumerate(("keys", "values")):
                for place, kind in enumerate(("untrained by head", "|cos| by head")):
                    heads: list[float] = []
                    for measured in numbers.values():
                        heads += listed(measured, f"{variant}: {tokens} {kind}")
                    x = [3 * column + place] * len(heads)
                    axes.plot(x, heads, "o", color=f"C{place}", alpha=0.6)
            axes.axhline(average(numbers, f"{variant}: keys random"), color="grey", ls=":")
            axes.set(title=variant, ylim=(0, 1))
            axes.set_xticks(
                [0, 1, 3, 4],
                ["keys,\nuntrained", "keys,\ntrained", "values,\nuntrained", "values,\ntrained"],
            )
        figure.axes[0].set_ylabel("mean |cos| (dotted: random)")
        caption = "Mean |cos| between the first layer's keys of all symbols; a point is a head."
        return [Picture("cosines", figure, caption, "Points for each head, a line for chance.")]


def _numbers(name: str, frames: list[KeyFrame]) -> dict[str, float | Sequence[float]]:
    cosines = [frame.cosine.value for frame in frames]
    before = [frame.cosine.nulls["untrained"] for frame in frames]
    width, count = frames[0].width, frames[0].count
    generator = torch.Generator().manual_seed(0)
    heads = torch.randn(500, len(frames), count, width, generator=generator)
    return {
        f"{name} |cos|": sum(cosines) / len(cosines),
        f"{name} |cos| by head": cosines,
        f"{name} untrained": sum(before) / len(before),
        f"{name} untrained by head": before,
        f"{name} random": frames[0].cosine.nulls["random"],
        f"{name} shuffled by head": [frame.cosine.nulls["shuffled"] for frame in frames],
        f"{name} p by head": [frame.cosine.p or 0.0 for frame in frames],
        f"{name} best head": min(cosines),
        f"{name} best of random heads": float(pair_cosine(heads).amin(1).mean()),
        f"{name} centred by head": [frame.centred.value for frame in frames],
        f"{name} rank by head": [frame.rank.value for frame in frames],
    }
