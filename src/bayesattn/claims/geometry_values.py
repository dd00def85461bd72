"""geometry-values: do late states lie on one axis, ordered by the entropy of the posterior?

    share   of the variance of the final residual, at the positions where a value is asked for, on
            its first component, or on a principal curve
    order   |correlation| of the place along either with the entropy of the exact posterior, after
            the mean of every step is taken off both

As the authors have it, keys never return, and the share is that of the first component. A long
common part of all states makes one axis, and the final norm takes its length off: as a control, the
share is measured after that norm, on what the prediction is read from. Where keys never return the
entropy is a function of the step, so any code of the position is ordered by it. As a control, keys
return: the entropy varies at a step. A horseshoe is ordered along itself, not along its first
component, so the curve stands beside the line. It is fitted on other sequences than those that it
is measured on.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from bayesattn.bits import entropy
from bayesattn.claims.exhibits import manifold_exhibit
from bayesattn.claims.geometry import AGAIN, NEVER, GeometryStudy, Looked, TrainedModel
from bayesattn.claims.panels import draw_beside, panels
from bayesattn.claims.registry import register
from bayesattn.ledger.study import Exhibit, Picture, Tier, Value
from bayesattn.ledger.typed import Stored
from bayesattn.models.architectures import Predictor
from bayesattn.probes.anatomy import anatomy
from bayesattn.probes.capture import capture
from bayesattn.probes.curve import principal_curve
from bayesattn.probes.readout import split
from bayesattn.probes.values import Components, components, order_given_step
from bayesattn.tunnels import Batch

LINE, CURVE = WAYS = ("line", "curve")


class Along(Stored):
    """States along a line or a curve."""

    share: float
    """Of the variance."""
    order: float | None
    """|r| with the entropy, given the step; None where the entropy is a function of the step."""


class Geometry(Looked):
    """The final residual of one model."""

    trained: Mapping[str, Along]
    """By way: line or curve."""
    untrained: Mapping[str, Along]
    as_read: float
    """Share of the first component after the final norm."""
    as_read_untrained: float


@register("geometry-values")
class GeometryValues(GeometryStudy[Geometry]):
    """Principal components and curves of final states, beside those before training."""

    def look(self, trained: TrainedModel) -> Geometry:
        batch = trained.batch
        bits = entropy(batch.posterior)
        after, before = (final_residual(model, batch) for model in (trained.model, trained.initial))
        return Geometry(
            kl=trained.kl,
            trained=ways(after, bits),
            untrained=ways(before, bits),
            as_read=first_share(components(as_read(trained.model, after))),
            as_read_untrained=first_share(components(as_read(trained.initial, before))),
        )

    def values(self, tier: Tier, one: Mapping[str, Geometry]) -> Mapping[str, Value]:
        never, again = one[NEVER], one[AGAIN]

        def ordered(way: str) -> Value:
            order, before = (own[way].order or 0.0 for own in (again.trained, again.untrained))
            return Value(order - before, before, again.learnt)

        return {
            "one-axis": Value(never.trained[LINE].share, never.untrained[LINE].share, never.learnt),
            "as-read": Value(never.as_read, never.as_read_untrained, never.learnt),
            "ordered": ordered(LINE),
            "ordered-curve": ordered(CURVE),
        }

    def draw(self, tier: Tier, found: Mapping[int, Mapping[str, Geometry]]) -> list[Picture]:
        figure, (share, order) = panels(2, size=(8, 2.6))
        rows = {f"{way}, {part}": (part, way) for part in (NEVER, AGAIN) for way in WAYS}
        shares = {
            name: [
                (own.trained[way].share, own.untrained[way].share) for own in self.each(found, part)
            ]
            for name, (part, way) in rows.items()
        }
        orders = {
            way: [
                (own.trained[way].order or 0.0, own.untrained[way].order or 0.0)
                for own in self.each(found, AGAIN)
            ]
            for way in WAYS
        }
        for axes, pairs in ((share, shares), (order, orders)):
            after, before = (
                {name: [pair[at] for pair in own] for name, own in pairs.items()} for at in (0, 1)
            )
            draw_beside(axes, after, before)
            axes.set(xlim=(-0.02, 1.02))
        read = [own.as_read for own in self.each(found, NEVER)]
        share.plot(read, [0.3] * len(read), "^", color="C2")
        share.set(xlabel="share of the variance")
        order.set(xlabel=f"|r| with entropy given the step, {AGAIN}")
        caption = (
            "The final residual along its first component and along a principal curve: circles "
            "after training, squares before; triangles: the line after the final norm; a point "
            "is a seed."
        )
        return [Picture("states", figure, caption, "Points by line and curve, two panels.")]

    def exhibits(self, tier: Tier, found: Mapping[int, Mapping[str, Geometry]]) -> list[Exhibit]:
        shown = self.trained(tier, AGAIN, min(found))
        return [
            manifold_exhibit(
                shown.model,
                shown.tunnel,
                title="States of the last layer",
                caption="The residual stream after the last layer, at key positions of held-out "
                "bijections, on its first three principal components; one model.",
            )
        ]


def final_residual(model: Predictor, batch: Batch) -> Tensor:
    """[N, S, d] after the last layer, where a value is asked for."""
    name = f"layers.{len(anatomy(model).layers) - 1}.residual_after"
    return capture(model, batch.inputs, [name], batch.scored)[name]


def as_read(model: Predictor, residual: Tensor) -> Tensor:
    """What the head of the model reads."""
    with torch.no_grad():
        return model.norm(residual)


def first_share(found: Components) -> float:
    return float(found.variances[0] / found.variances.sum())


def ways(x: Tensor, bits: Tensor) -> dict[str, Along]:
    """States x [N, S, d] with entropies `bits` [N, S], along a line and along a curve."""
    train, test = split(len(x))
    straight = components(x)
    curve = principal_curve(x[train])
    # of curves, only what they tell of other sequences counts
    place = curve.land(x[test]).coordinate
    return {
        LINE: Along(
            share=first_share(straight), order=order_given_step(straight.scores[..., 0], bits)
        ),
        CURVE: Along(share=curve.share(x[test]), order=order_given_step(place, bits[test])),
    }
