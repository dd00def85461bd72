"""geometry-ffn: is it the feed-forward layers that compute the answer?

    needed    what the model loses in KL(Bayes ‖ model) when all feed-forward parts are replaced by
              their means over sequences, of what it knows: uniform predictor minus model
    written   share of the logits that feed-forward parts write (`probes.attribution`)

Both for attention as well. The first says who is needed, and attention always is, since nothing
else looks at other positions; the second says who writes the answer, whoever came first.
"""

from collections.abc import Mapping

from bayesattn.bits import kl_divergence
from bayesattn.claims.geometry import AGAIN, FILTER, NEVER, GeometryStudy, Looked, TrainedModel
from bayesattn.claims.panels import draw_beside, panels
from bayesattn.claims.registry import register
from bayesattn.ledger.study import Picture, Tier, Value
from bayesattn.probes.ablation import Cut, errors
from bayesattn.probes.anatomy import anatomy
from bayesattn.probes.attribution import logit_shares
from bayesattn.tunnels import Batch

FEED, ATTENTION = PARTS = ("feed-forward", "attention")
LEAST = 1e-3
"""A part of what the model knows that is less than this is nothing."""


class Sublayers(Looked):
    """Of one model, by kind of sublayer."""

    uniform_kl: float
    without: Mapping[str, float]
    """KL without all parts of one kind, bits."""
    written: Mapping[str, list[float]]
    """Share of the logits, by layer."""

    def needed(self, kind: str) -> float:
        lost = (self.without[kind] - self.kl) / (self.uniform_kl - self.kl)
        return max(lost, LEAST)

    def wrote(self, kind: str) -> float:
        return sum(self.written[kind])


@register("geometry-ffn")
class GeometryFFN(GeometryStudy[Sublayers]):
    """Takes sublayers of one kind away, and takes logits apart."""

    models = (NEVER, AGAIN, FILTER)

    def look(self, trained: TrainedModel) -> Sublayers:
        model, batch = trained.model, trained.batch
        layers = range(len(anatomy(model).layers))
        cuts = {
            FEED: [Cut(part="mlp", layer=layer, kind="mean") for layer in layers],
            ATTENTION: [Cut(part="heads", layer=layer, kind="mean") for layer in layers],
        }
        shares = logit_shares(model, batch)
        return Sublayers(
            kl=trained.kl,
            uniform_kl=_uniform_kl(batch),
            without={
                kind: float(errors(model, batch, own)[0].mean()) for kind, own in cuts.items()
            },
            written={FEED: shares.feed_forward, ATTENTION: shares.attention},
        )

    def values(self, tier: Tier, one: Mapping[str, Sublayers]) -> Mapping[str, Value]:
        def needed(part: str) -> Value:
            own = one[part]
            return Value(own.needed(FEED), own.needed(ATTENTION), own.learnt)

        def written(part: str) -> Value:
            own = one[part]
            return Value(own.wrote(FEED), own.wrote(ATTENTION), own.learnt)

        return {
            "needed": needed(NEVER),
            "written": written(NEVER),
            "needed-returning": needed(AGAIN),
            "needed-filter": needed(FILTER),
            "written-filter": written(FILTER),
        }

    def draw(self, tier: Tier, found: Mapping[int, Mapping[str, Sublayers]]) -> list[Picture]:
        figure, (needed, written) = panels(2, size=(8, 2.8), sharey=True)
        for axes, number in ((needed, Sublayers.needed), (written, Sublayers.wrote)):
            feed, attention = (
                {
                    part: [number(own, kind) for own in self.each(found, part)]
                    for part in self.models
                }
                for kind in PARTS
            )
            draw_beside(axes, feed, attention)
        needed.set(xlabel="lost without, of what the model knows", xscale="log")
        written.set(xlabel="share of the logits")
        caption = (
            "Circles: feed-forward parts; squares: attention. Left: what is lost when all parts of "
            "a kind are replaced by their means; right: who writes the logits. A point is a seed."
        )
        return [Picture("parts", figure, caption, "Points by task, two panels.")]


def _uniform_kl(batch: Batch) -> float:
    flat = batch.posterior.new_zeros(batch.posterior.shape).log_softmax(-1)
    return float(kl_divergence(batch.posterior, flat).mean())
