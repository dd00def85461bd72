"""geometry-ffn: is it the feed-forward layers that compute the answer?

    gain = held-out R² of the entropy, read linearly from the residual stream after a sublayer,
           minus the same before it, each with a probe of its own

added up over layers, for feed-forward parts and for attention. A probe fitted before and used after
a sublayer only tells whether the code was turned.
"""

from collections.abc import Mapping

from bayesattn.claims.geometry import VARIANTS, GeometryStudy, TrainedModel, average, each
from bayesattn.claims.panels import panels
from bayesattn.claims.registry import register
from bayesattn.ledger.study import Finding, Picture, Tier
from bayesattn.ledger.typed import Stored
from bayesattn.probes.ablation import Cut, errors
from bayesattn.probes.anatomy import anatomy
from bayesattn.probes.measured import held_out
from bayesattn.probes.sublayers import TARGETS, Sublayer, measure_sublayers, total_gain
from bayesattn.stats import judge_all, judge_effect

FEED, ATTENTION = SUBLAYERS = ("feed-forward", "attention")


class Gains(Stored):
    """In R² of one target."""

    by_layer: Mapping[str, list[float]]
    """Of each sublayer."""
    difference: float
    """Of all feed-forward parts minus all attention parts."""
    difference_untrained: float


class Sublayers(Stored):
    """Of one model: gains by target, and bits of error without all parts of one kind."""

    gains: Mapping[str, Gains]
    without_attention: float
    without_feed: float


Found = Mapping[int, Mapping[str, Sublayers]]


@register("geometry-ffn")
class GeometryFFN(GeometryStudy[Sublayers]):
    """Linear probes before and after every sublayer of trained models."""

    def look(self, trained: TrainedModel, sequences: int) -> Sublayers:
        model, initial, tunnel = trained
        batch = held_out(tunnel, sequences)
        after, before = (measure_sublayers(one, batch) for one in (model, initial))
        gains = {
            target: Gains(
                by_layer={
                    kind: [
                        one.gain.value
                        for one in after
                        if (one.sublayer, one.target) == (kind, target)
                    ]
                    for kind in SUBLAYERS
                },
                difference=_difference(after, target),
                difference_untrained=_difference(before, target),
            )
            for target in TARGETS
        }
        whole = errors(model, batch)[1].mean()
        heads = [Cut(part="heads", layer=layer) for layer in anatomy(model).attending]
        feed = [Cut(part="mlp", layer=layer) for layer in range(len(anatomy(model).layers))]
        return Sublayers(
            gains=gains,
            without_attention=float(errors(model, batch, heads)[1].mean() - whole),
            without_feed=float(errors(model, batch, feed)[1].mean() - whole),
        )

    def judge(self, tier: Tier, found: Found) -> Finding:
        """Feed-forward parts must gain more than attention, with and without returning keys."""
        by_variant = {variant: each(found, variant) for variant in VARIANTS}
        parts = {
            variant: judge_effect([one.gains["entropy"].difference for one in own])
            for variant, own in by_variant.items()
        }
        judgement = judge_all(parts)
        decided = next((v for v in VARIANTS if judgement.reason.startswith(v)), VARIANTS[0])
        costs = "; ".join(
            f"{variant}, {average(one.without_feed for one in own):.2g} bits more without "
            f"feed-forward parts, {average(one.without_attention for one in own):.2g} without "
            "attention"
            for variant, own in by_variant.items()
        )
        untrained = [one.gains["entropy"].difference_untrained for one in by_variant[decided]]
        return Finding(
            judgement,
            unit="R² gained by feed-forward parts beyond attention",
            null=average(untrained),
            note=f"Error: {costs}.",
        )

    def draw(self, tier: Tier, found: Found) -> list[Picture]:
        figure, both = panels(2, size=(8, 3), sharey=True)
        for axes, variant in zip(both, VARIANTS, strict=True):
            for colour, kind in enumerate(SUBLAYERS):
                for one in found.values():
                    gains = one[variant].gains["entropy"].by_layer[kind]
                    places = [
                        layer + (0.15 if kind == FEED else -0.15) for layer in range(len(gains))
                    ]
                    axes.plot(places, gains, "o", color=f"C{colour}", alpha=0.7)
            axes.axhline(0, color="grey", lw=1)
            axes.set(title=variant, xlabel="layer (left: attention, right: feed-forward)")
        both[0].set_ylabel("gain in R² of the entropy")
        caption = "What a linear probe gains from each sublayer; a point is a seed."
        return [Picture("gains", figure, caption, "Points by layer and sublayer, two panels.")]


def _difference(gains: list[Sublayer], target: str) -> float:
    return total_gain(gains, FEED, target) - total_gain(gains, ATTENTION, target)
