"""geometry-frame-head: is there one head of the first layer that the model cannot do without?

    cost of a head = error without it - error of the whole model

As the authors have it, a head is set to zero and the error is that of the entropy. As a control, a
head is replaced by its mean over sequences, which does not take the model to states it has never
seen, and the error is KL(Bayes ‖ model), a proper score; a random subspace of the heads' outputs,
as wide as a head, shows what that much of anything costs.

The head is chosen on one half of the sequences and its cost measured on the other, so that luck
does not choose itself. All conditions see the same sequences.
"""

from collections.abc import Mapping, Sequence

from bayesattn.claims.exhibits import heatmap_exhibit
from bayesattn.claims.geometry import AGAIN, NEVER, GeometryStudy, Looked, TrainedModel, average
from bayesattn.claims.panels import panels
from bayesattn.claims.registry import register
from bayesattn.ledger.study import Exhibit, Picture, Tier, Value
from bayesattn.ledger.typed import Stored
from bayesattn.models.architectures import Predictor
from bayesattn.probes.ablation import Cut, Kind, errors, random_subspaces, replacements
from bayesattn.probes.anatomy import anatomy
from bayesattn.tunnels import Batch

ZERO: Kind = "zero"
MEAN: Kind = "mean"
WAYS = (ZERO, MEAN)
DRAWS = 8
"""Random subspaces whose mean cost stands beside that of a head."""
LEAST = 1e-4
"""Bits: what costs less costs nothing; a ratio of two such costs would mean nothing."""


class Costs(Stored):
    """What each head of the first layer costs if taken away in one way, in bits."""

    chosen: list[float]
    """On the half of the sequences that the most costly head is chosen on."""
    measured: list[float]
    """On the other half."""

    @property
    def top(self) -> float:
        return self.measured[self._first]

    @property
    def next(self) -> float:
        return max(cost for at, cost in enumerate(self.measured) if at != self._first)

    @property
    def over_next(self) -> float:
        return max(self.top, LEAST) / max(self.next, LEAST)

    @property
    def _first(self) -> int:
        return self.chosen.index(max(self.chosen))


class Ablated(Looked):
    """Of one model."""

    mae: float
    """Entropy error of the whole model, bits."""
    entropy_costs: Mapping[str, Costs]
    """Of the entropy error, by way of taking away."""
    kl_costs: Mapping[str, Costs]
    """Of KL(Bayes ‖ model), likewise."""
    random_kl: float
    """What random subspaces cost in KL if replaced by their mean."""
    table: list[list[float]]
    """Cost in KL of every head of every layer if replaced by its mean."""


@register("geometry-frame-head")
class GeometryFrameHead(GeometryStudy[Ablated]):
    """Takes away each head of trained models in turn."""

    def look(self, trained: TrainedModel) -> Ablated:
        model, parts = trained.model, anatomy(trained.model)
        halves = _halves(trained.batch)
        found = {
            way: [_costs(model, half, _heads(model, 0, way)) for half in halves] for way in WAYS
        }
        kl, entropy = (
            {way: Costs(chosen=one[at], measured=two[at]) for way, (one, two) in found.items()}
            for at in (0, 1)
        )
        random = random_subspaces(parts, Cut(part="head", layer=0, head=0, kind=MEAN), DRAWS)
        rest = (_costs(model, halves[1], _heads(model, at, MEAN)) for at in parts.attending[1:])
        return Ablated(
            kl=trained.kl,
            mae=float(errors(model, halves[1])[1].mean()),
            entropy_costs=entropy,
            kl_costs=kl,
            random_kl=average(_costs(model, halves[1], random)[0]),
            table=[kl[MEAN].measured, *(own[0] for own in rest)],
        )

    def values(self, tier: Tier, one: Mapping[str, Ablated]) -> Mapping[str, Value]:
        never, again = one[NEVER], one[AGAIN]
        entropy, kl = never.entropy_costs[ZERO], again.kl_costs[MEAN]
        beyond = max(kl.top, LEAST) / max(again.random_kl, LEAST)
        times = max(never.mae + entropy.top, LEAST) / never.mae
        return {
            "catastrophe": Value(times, never.mae, never.learnt),
            "beyond-random": Value(beyond, again.random_kl, again.learnt),
            "alone": Value(entropy.over_next, entropy.next, never.learnt),
            "alone-in-kl": Value(kl.over_next, kl.next, again.learnt),
        }

    def draw(self, tier: Tier, found: Mapping[int, Mapping[str, Ablated]]) -> list[Picture]:
        figure, both = panels(2, size=(8, 3))
        shown = {
            NEVER: ("bits of entropy error, set to zero", ZERO),
            AGAIN: ("bits of KL, replaced by the mean", MEAN),
        }
        for axes, (part, (unit, way)) in zip(both, shown.items(), strict=True):
            for colour, own in enumerate(self.each(found, part)):
                kind = own.entropy_costs if way == ZERO else own.kl_costs
                costs = sorted(kind[way].measured, reverse=True)
                axes.plot(range(1, len(costs) + 1), costs, "o-", color=f"C{colour}")
            axes.set(title=part, xlabel="head of the first layer, most costly first", ylabel=unit)
        random = average(own.random_kl for own in self.each(found, AGAIN))
        both[1].axhline(random, color="grey", ls=":")
        caption = (
            "What each head of the first layer costs, one line per seed; dotted: a random subspace "
            "as wide as a head."
        )
        return [Picture("costs", figure, caption, "Falling lines, one per seed.")]

    def exhibits(self, tier: Tier, found: Mapping[int, Mapping[str, Ablated]]) -> list[Exhibit]:
        table = self.each(found, AGAIN)[0].table
        return [
            heatmap_exhibit(
                table,
                [f"layer {layer}" for layer in range(len(table))],
                [f"head {head}" for head in range(len(table[0]))],
                labels=("layer", "head"),
                unit="bits",
                title="Every head taken out",
                caption="KL(Bayes ‖ model) that a head costs when its output is replaced by its "
                "mean over sequences; keys return, first seed.",
            )
        ]


def _heads(model: Predictor, layer: int, kind: Kind) -> list[Cut]:
    heads = range(anatomy(model).attention(layer).heads)
    return [Cut(part="head", layer=layer, head=head, kind=kind) for head in heads]


def _costs(model: Predictor, batch: Batch, cuts: Sequence[Cut]) -> list[list[float]]:
    """Mean cost of each cut alone: in KL, and in entropy error."""
    others = replacements(model, batch.inputs, cuts)
    found = (errors(model, batch, [cut], others) for cut in cuts)
    pairs = [[float(error.mean()) for error in own] for own in (errors(model, batch), *found)]
    return [[own[at] - pairs[0][at] for own in pairs[1:]] for at in (0, 1)]


def _halves(batch: Batch) -> list[Batch]:
    middle = len(batch.inputs) // 2
    return [batch.rows(slice(0, middle)), batch.rows(slice(middle, None))]
