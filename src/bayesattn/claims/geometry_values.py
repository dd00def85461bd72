"""geometry-values: do late values lie on one axis, ordered by the entropy of the posterior?

    share   of the variance of the last layer's attention outputs on their first component
    order   |correlation| of that component with the entropy of the exact posterior, after the
            mean of every step is taken off both

An attention output is the posterior mean of the values. Without returning keys the entropy is a
function of the step, so any code of the position is ordered by it; with them it varies at a step.
"""

from collections.abc import Mapping

from bayesattn.claims.exhibits import manifold_exhibit
from bayesattn.claims.geometry import (
    AGAIN,
    GeometryStudy,
    Layers,
    Pair,
    TrainedModel,
    average,
    each,
    trained_model,
)
from bayesattn.claims.panels import draw_beside, panels
from bayesattn.claims.registry import register
from bayesattn.ledger.study import Exhibit, Finding, Picture, Tier
from bayesattn.ledger.typed import Stored
from bayesattn.probes.clusters import measure_clusters
from bayesattn.probes.measured import held_out
from bayesattn.probes.values import Manifold, measure_values
from bayesattn.stats import judge_all, judge_effect
from bayesattn.tunnels import HMM

SHARE = 0.5
"""One axis dominates if it holds more than half of the variance."""
ORDER = 0.5
"""Ordered: correlated by so much more than before training."""
JUDGED = "attention outputs"
KINDS = ("values", JUDGED, "residual")


class State(Stored):
    """States of one kind after one layer."""

    layer: int
    kind: str
    share: Pair
    """Of the variance on the first component."""
    participation: Pair
    order: Pair
    order_p: float
    given_step: bool
    """False where the entropy is a function of the step, so that the order is one of the step."""
    decodability: Pair
    """R² of a held-out linear probe of the entropy."""
    decodability_of_step: float
    """The same from the step alone."""


class Geometry(Stored):
    """Of one model."""

    states: list[State]
    clusters: Mapping[str, Layers]
    """Of beliefs, for models of hidden Markov models: silhouette, simplex and entropy."""

    def last(self, kind: str) -> State:
        return max((s for s in self.states if s.kind == kind), key=lambda state: state.layer)


Found = Mapping[int, Mapping[str, Geometry]]


@register("geometry-values")
class GeometryValues(GeometryStudy[Geometry]):
    """Principal components of states of trained models, beside those before training."""

    def look(self, trained: TrainedModel, sequences: int) -> Geometry:
        model, initial, tunnel = trained
        states = measure_values(model, held_out(tunnel, sequences), initial)
        clusters: dict[str, Layers] = {}
        if isinstance(tunnel, HMM):
            layers = measure_clusters(model, held_out(tunnel, 256), initial)
            for name in ("silhouette", "simplex", "entropy"):
                clusters[name] = Layers.of([getattr(layer, name) for layer in layers])
        return Geometry(states=[_state(one) for one in states], clusters=clusters)

    def judge(self, tier: Tier, found: Found) -> Finding:
        """One axis, then its order."""
        states = [model.last(JUDGED) for model in each(found, AGAIN)]
        untrained = average(state.order.untrained for state in states)
        axis, order = "share of the first component", "order given the step"
        shares, orders = ([s.share.trained for s in states], [s.order.trained for s in states])
        parts = {
            axis: judge_effect(shares, minimum=SHARE),
            order: judge_effect(orders, null=untrained, minimum=ORDER),
        }
        judgement = judge_all(parts)
        ordered = judgement.reason.startswith(order)
        return Finding(
            judgement,
            unit="|correlation| with entropy" if ordered else "of the variance on one axis",
            null=untrained if ordered else average(s.share.untrained for s in states),
            note=f"Share {average(shares):.2f}, participation "
            f"ratio {average(s.participation.trained for s in states):.1f}, order "
            f"{average(orders):.2f}; the entropy is decodable with "
            f"R² {average(s.decodability.trained for s in states):.2f}.",
        )

    def draw(self, tier: Tier, found: Found) -> list[Picture]:
        figure, (share, order) = panels(2, size=(8, 2.6), sharey=True)
        states = {kind: [model.last(kind) for model in each(found, AGAIN)] for kind in KINDS}
        shares = {kind: [state.share for state in own] for kind, own in states.items()}
        orders = {kind: [state.order for state in own] for kind, own in states.items()}
        share.set(xlabel="variance on the first component")
        order.set(xlabel="|r| given the step")
        for axes, rows in ((share, shares), (order, orders)):
            before = {kind: [pair.untrained for pair in own] for kind, own in rows.items()}
            after = {kind: [pair.trained for pair in own] for kind, own in rows.items()}
            draw_beside(axes, after, before)
            axes.axvline(SHARE, color="grey", ls=":")
            axes.set(xlim=(0, 1))
        caption = (
            "States of the last layer: circles after training, squares before; dotted: what the "
            "claim needs; a point is a seed."
        )
        return [Picture("states", figure, caption, "Points by kind of state, two panels.")]

    def exhibits(self, tier: Tier, found: Found) -> list[Exhibit]:
        shown = trained_model(tier, AGAIN, 0)
        return [
            manifold_exhibit(
                shown.model,
                shown.tunnel,
                title="States of the last layer",
                caption="Attention outputs at key positions of held-out bijections on their first "
                "three principal components, one model.",
            )
        ]


def _state(states: Manifold) -> State:
    order = states.given_position or states.order
    return State(
        layer=states.layer,
        kind=states.states,
        share=Pair.of(states.share),
        participation=Pair.of(states.participation),
        order=Pair.of(order),
        order_p=order.p or 0.0,
        given_step=states.given_position is not None,
        decodability=Pair.of(states.decodability),
        decodability_of_step=states.decodability.nulls["step alone"],
    )
