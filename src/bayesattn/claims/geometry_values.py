"""geometry-values: do late values lie on one axis, ordered by the entropy of the posterior?

    share   of the variance of the last layer's attention outputs on their first component
    order   |correlation| of that component with the entropy of the exact posterior, after the
            mean of every step is taken off both

An attention output is the posterior mean of the values. Without returning keys the entropy is a
function of the step, so any code of the position is ordered by it; with them it varies at a step.
"""

from collections.abc import Mapping, Sequence

from bayesattn.claims.geometry_subjects import (
    AGAIN,
    FILTER,
    GeometryStudy,
    subject,
    subjects,
    training,
)
from bayesattn.claims.registry import register
from bayesattn.ledger.exhibits import manifold_exhibit
from bayesattn.ledger.study import Exhibit, Numbers, Picture, Tier, Verdict
from bayesattn.ledger.summaries import average, by_seed
from bayesattn.probes.clusters import measure_clusters
from bayesattn.probes.values import Manifold, measure_values
from bayesattn.stats import judge_all, judge_effect

SHARE = 0.5
"""One axis dominates if it holds more than half of the variance."""
ORDER = 0.5
"""Ordered: correlated by so much more than before training."""
JUDGED = f"{AGAIN}: last attention outputs"


@register("geometry-values")
class GeometryValues(GeometryStudy[Numbers]):
    """Principal components of states of trained models, beside those before training."""

    def measure(self, tier: Tier, seed: int) -> Numbers:
        """Every kind of state after every layer."""
        recipe = self.recipes[tier]
        found: dict[str, float | Sequence[float]] = {}
        for variant, (model, initial, tunnel) in subjects(tier, seed, recipe):
            states = measure_values(model, tunnel, initial=initial, sequences=recipe.sequences)
            last = max(one.layer for one in states)
            for one in states:
                found |= _numbers(f"{variant}: L{one.layer} {one.states}", one)
                if one.layer == last:
                    found |= _numbers(f"{variant}: last {one.states}", one)
            if variant == FILTER:
                layers = measure_clusters(model, tunnel, initial=initial, sequences=256)
                for name in ("silhouette", "simplex", "entropy"):
                    own = [getattr(layer, name) for layer in layers]
                    found[f"{variant}: {name} by layer"] = [one.value for one in own]
                    found[f"{variant}: {name} by layer, untrained"] = [
                        one.nulls["untrained"] for one in own
                    ]
        return found

    def judge(self, tier: Tier, numbers: Mapping[int, Numbers]) -> Verdict:
        """One axis, then its order."""
        untrained = average(numbers, f"{JUDGED} order untrained")
        axis, order = "share of the first component", "order given the step"
        parts = {
            axis: judge_effect(by_seed(numbers, f"{JUDGED} share"), minimum=SHARE),
            order: judge_effect(by_seed(numbers, f"{JUDGED} order"), null=untrained, minimum=ORDER),
        }
        judgement = judge_all(parts)
        ordered = judgement.reason.startswith(order)
        reason = (
            f"{judgement.reason} Share {average(numbers, f'{JUDGED} share'):.2f}, participation "
            f"ratio {average(numbers, f'{JUDGED} participation'):.1f}, order "
            f"{average(numbers, f'{JUDGED} order'):.2f}; the entropy is decodable with "
            f"R² {average(numbers, f'{JUDGED} decodability'):.2f}."
        )
        return self.verdict(
            judgement._replace(reason=reason),
            tier=tier,
            seeds=tuple(numbers),
            unit="|correlation| with entropy" if ordered else "of the variance on one axis",
            null=untrained if ordered else average(numbers, f"{JUDGED} share untrained"),
        )

    def draw(self, tier: Tier, numbers: Mapping[int, Numbers]) -> list[Picture]:
        """Share and order of each kind of state in the last layer."""
        from matplotlib.figure import Figure

        kinds = ("values", "attention outputs", "residual")
        figure = Figure(figsize=(8, 2.6), layout="constrained")
        for axes, name in zip(figure.subplots(1, 2, sharey=True), ("share", "order"), strict=True):
            for row, kind in enumerate(kinds):
                where = f"{AGAIN}: last {kind} {name}"
                trained, before = by_seed(numbers, where), by_seed(numbers, f"{where} untrained")
                axes.plot(before, [row - 0.1] * len(before), "s", color="C1", alpha=0.7)
                axes.plot(trained, [row + 0.1] * len(trained), "o", color="C0", alpha=0.8)
            axes.axvline(SHARE, color="grey", ls=":")
            what = "variance on the first component" if name == "share" else "|r| given the step"
            axes.set(xlabel=what, xlim=(0, 1))
            axes.set_yticks(range(len(kinds)), kinds)
        caption = (
            "States of the last layer: circles after training, squares before; dotted: what the "
            "claim needs; a point is a seed."
        )
        return [Picture("states", figure, caption, "Points by kind of state, two panels.")]

    def exhibits(self, tier: Tier, numbers: Mapping[int, Numbers]) -> list[Exhibit]:
        """The states themselves."""
        shown = subject(training(tier, AGAIN, 0))
        return [
            manifold_exhibit(
                shown.model,
                shown.tunnel,
                title="States of the last layer",
                caption="Attention outputs at key positions of held-out bijections on their first "
                "three principal components, one model.",
            )
        ]


def _numbers(name: str, states: Manifold) -> dict[str, float]:
    # where the entropy is a function of the step there is no order given the step
    order = states.given_position or states.order
    kind = "order" if states.given_position else "order of the step"
    return {
        f"{name} share": states.share.value,
        f"{name} share untrained": states.share.nulls["untrained"],
        f"{name} participation": states.participation.value,
        f"{name} participation untrained": states.participation.nulls["untrained"],
        f"{name} {kind}": order.value,
        f"{name} {kind} untrained": order.nulls["untrained"],
        f"{name} {kind} p": order.p or 0.0,
        f"{name} decodability": states.decodability.value,
        f"{name} decodability untrained": states.decodability.nulls["untrained"],
        f"{name} decodability of the step alone": states.decodability.nulls["step alone"],
    }
