"""geometry-keys: are the first layer's keys of different symbols orthogonal to each other?

    |cos| = mean over pairs of tokens i ≠ j of |k_i·k_j| / (‖k_i‖ ‖k_j‖),   k_i = W_K norm(e_i)

Keys are what attention receives, after the norm that the model really applies, per head. Random
directions of the same width are the null; signed means, which the papers also report, would be
about 0 for anything.
"""

from collections.abc import Mapping, Sequence

import torch

from bayesattn.claims.geometry import VARIANTS, GeometryStudy, TrainedModel, average, each
from bayesattn.claims.panels import panels
from bayesattn.claims.registry import register
from bayesattn.ledger.study import Finding, Picture, Tier
from bayesattn.ledger.typed import Stored
from bayesattn.probes.keys import KeyFrame, measure_keys, pair_cosine
from bayesattn.probes.measured import held_out
from bayesattn.stats import Outcome, judge_all, judge_below, judge_effect

PERMUTATIONS = 999
KEYS, VALUES = SYMBOLS = ("keys", "values")


class Frame(Stored):
    """The first layer's keys of one kind of symbol, a number for each head."""

    cosine: list[float]
    """Mean |cos|; so are the next two."""
    untrained: list[float]
    shuffled: list[float]
    """Coordinates shuffled over symbols."""
    p: list[float]
    """Of the permutations behind `shuffled`."""
    centred: list[float]
    rank: list[float]
    random: float
    """Of random directions, exactly."""
    best_random: float
    """Of the most orthogonal of as many random heads."""


Found = Mapping[int, Mapping[str, Mapping[str, Frame]]]


@register("geometry-keys")
class GeometryKeys(GeometryStudy[Mapping[str, Frame]]):
    """Measures cosines between the keys of all symbols in trained bijection models."""

    def parts(self, tier: Tier) -> Sequence[str]:
        return VARIANTS

    def look(self, trained: TrainedModel, sequences: int) -> Mapping[str, Frame]:
        model, initial, tunnel = trained
        batch = held_out(tunnel, sequences)
        frames = measure_keys(model, tunnel, batch, initial, PERMUTATIONS)
        return {
            symbols: _frame([f for f in frames if (f.layer, f.tokens) == (0, symbols)])
            for symbols in SYMBOLS
        }

    def judge(self, tier: Tier, found: Found) -> Finding:
        """Against random directions first, then against the start of training."""
        keys = {variant: [one[KEYS] for one in each(found, variant)] for variant in VARIANTS}
        random = average(frame.random for frame in keys[VARIANTS[0]])
        judgement = judge_all(
            {
                f"{variant}, against random directions": judge_below(
                    [average(frame.cosine) for frame in frames], limit=random
                )
                for variant, frames in keys.items()
            }
        )
        if judgement.outcome is Outcome.SUPPORTED:
            judged = judge_all(
                {
                    f"{variant}, untrained minus trained": judge_effect(
                        [average(frame.untrained) - average(frame.cosine) for frame in frames]
                    )
                    for variant, frames in keys.items()
                }
            )
            judgement = judgement._replace(outcome=judged.outcome, reason=judged.reason, p=judged.p)
        best = ", ".join(
            f"{average(min(frame.cosine) for frame in frames):.3g} if {variant}"
            for variant, frames in keys.items()
        )
        chance = average(frame.best_random for frame in keys[VARIANTS[0]])
        return Finding(
            judgement,
            unit="mean |cos| of first-layer keys",
            null=random,
            note=f"The most orthogonal head has {best}; the best of as many random heads "
            f"{chance:.3g}.",
        )

    def draw(self, tier: Tier, found: Found) -> list[Picture]:
        figure, both = panels(2, size=(8, 3), sharey=True)
        for axes, variant in zip(both, VARIANTS, strict=True):
            for column, symbols in enumerate(SYMBOLS):
                for frame in (one[symbols] for one in each(found, variant)):
                    for place, heads in enumerate((frame.untrained, frame.cosine)):
                        x = [3 * column + place] * len(heads)
                        axes.plot(x, heads, "o", color=f"C{place}", alpha=0.6)
            random = average(one[KEYS].random for one in each(found, variant))
            axes.axhline(random, color="grey", ls=":")
            axes.set(title=variant, ylim=(0, 1))
            axes.set_xticks(
                [0, 1, 3, 4],
                [f"{symbols},\n{when}" for symbols in SYMBOLS for when in ("untrained", "trained")],
            )
        both[0].set_ylabel("mean |cos| (dotted: random)")
        caption = "Mean |cos| between the first layer's keys of all symbols; a point is a head."
        return [Picture("cosines", figure, caption, "Points for each head, a line for chance.")]


def _frame(heads: list[KeyFrame]) -> Frame:
    generator = torch.Generator().manual_seed(0)
    random = torch.randn(500, len(heads), heads[0].count, heads[0].width, generator=generator)
    return Frame(
        cosine=[head.cosine.value for head in heads],
        untrained=[head.cosine.nulls["untrained"] for head in heads],
        shuffled=[head.cosine.nulls["shuffled"] for head in heads],
        p=[head.cosine.p or 0.0 for head in heads],
        centred=[head.centred.value for head in heads],
        rank=[head.rank.value for head in heads],
        random=heads[0].cosine.nulls["random"],
        best_random=float(pair_cosine(random).amin(1).mean()),
    )
