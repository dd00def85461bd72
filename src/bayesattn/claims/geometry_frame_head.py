"""geometry-frame-head: is there one head of the first layer that the model cannot do without?

    cost of a head = error with its output set to zero - error of the whole model

The head is chosen on one half of the sequences and its cost measured on the other, so that luck
does not choose itself. All conditions see the same sequences.
"""

from collections.abc import Mapping

import torch

from bayesattn.claims.exhibits import heatmap_exhibit
from bayesattn.claims.geometry import VARIANTS, GeometryStudy, TrainedModel, average, each
from bayesattn.claims.panels import panels
from bayesattn.claims.registry import register
from bayesattn.evals.fidelity import EVAL_SEED
from bayesattn.ledger.study import Exhibit, Finding, Picture, Tier
from bayesattn.ledger.typed import Stored
from bayesattn.models.architectures import Predictor
from bayesattn.probes.ablation import KINDS, Ablations, Cut, Loss, errors, measure_ablations
from bayesattn.probes.anatomy import anatomy
from bayesattn.probes.measured import held_out
from bayesattn.stats import Judgement, judge_all, judge_effect
from bayesattn.tunnels import Tunnel

RATIO = 10.0
"""Catastrophic: the authors' word for an error that grows more than so many times."""
DOMINANCE = 2.0
"""One head: it costs at least so many times what the next one does."""


class Errors(Stored):
    """In bits: of the entropy, and KL(Bayes ‖ model)."""

    mae: float
    kl: float


class Costs(Stored):
    """What parts cost, taken away in one way: more error than that of the whole model."""

    heads: list[list[Errors]]
    """By layer that attends, and head."""
    attention: list[Errors]
    """All heads of a layer at once, by layer that attends."""
    feed_forward: list[Errors]
    """By layer."""


class Ablated(Stored):
    """Of one model."""

    head: int
    """The most costly one of the first layer, on one half of the sequences."""
    times_next: float
    """Its cost on the other half, over that of the next head."""
    times_whole: float
    """The error without it, over that of the whole model."""
    whole: Errors
    random_mae: float
    """Cost of a random subspace as wide as a head."""
    bypass_mae: list[float]
    """Cost of each layer."""
    costs: Mapping[str, Costs]
    """By way of taking away: zero, mean or resample."""

    @property
    def random_times_whole(self) -> float:
        return (self.whole.mae + self.random_mae) / self.whole.mae


Found = Mapping[int, Mapping[str, Ablated]]


@register("geometry-frame-head")
class GeometryFrameHead(GeometryStudy[Ablated]):
    """Takes away each head of trained models in turn."""

    def look(self, trained: TrainedModel, sequences: int) -> Ablated:
        model, _, tunnel = trained
        head, times_next, times_whole = _most_costly(model, tunnel, sequences)
        table, parts = measure_ablations(model, held_out(tunnel, sequences)), anatomy(model)
        layers = range(len(parts.layers))

        def costs(kind: str) -> Costs:
            return Costs(
                heads=[
                    [
                        _errors(table.find("head", layer, head, kind))
                        for head in range(parts.attention(layer).heads)
                    ]
                    for layer in parts.attending
                ],
                attention=[_errors(table.find("heads", at, kind=kind)) for at in parts.attending],
                feed_forward=[_errors(table.find("mlp", layer, kind=kind)) for layer in layers],
            )

        return Ablated(
            head=head,
            times_next=times_next,
            times_whole=times_whole,
            whole=_errors(table),
            random_mae=table.find("head", 0, 0).mae.nulls["random subspace"],
            bypass_mae=[table.find("layer", at, kind="bypass").mae.value for at in layers],
            costs={kind: costs(kind) for kind in KINDS},
        )

    def judge(self, tier: Tier, found: Found) -> Finding:
        """Catastrophic and alone, with and without returning keys."""
        parts: dict[str, Judgement] = {}
        nulls: dict[str, tuple[str, float]] = {}
        for variant in VARIANTS:
            models = each(found, variant)
            alone, worse = f"{variant}, against the next head", f"{variant}, error"
            parts[alone] = judge_effect([one.times_next for one in models], minimum=DOMINANCE)
            nulls[alone] = ("times the cost of the next head", 1.0)
            parts[worse] = judge_effect([one.times_whole for one in models], minimum=RATIO)
            random = average(one.random_times_whole for one in models)
            nulls[worse] = ("times the whole model's error", random)
        judgement = judge_all(parts)
        # without a name in front all parts hold, and the first one speaks for them
        said = (name for name in parts if judgement.reason.startswith(name))
        decided = next(said, next(iter(parts)))
        unit, null = nulls[decided]
        times = ", ".join(
            f"{average(one.times_whole for one in each(found, variant)):.3g} if {variant}"
            for variant in VARIANTS
        )
        return Finding(
            judgement,
            unit=unit,
            null=null,
            note=f"Without it the error is this many times larger: {times}.",
        )

    def draw(self, tier: Tier, found: Found) -> list[Picture]:
        figure, both = panels(2, size=(8, 3), sharey=True)
        for axes, variant in zip(both, VARIANTS, strict=True):
            models = each(found, variant)
            zeros = [one.costs["zero"] for one in models]
            for colour, zero in enumerate(zeros):
                costs = sorted((head.mae for head in zero.heads[0]), reverse=True)
                axes.plot(range(1, len(costs) + 1), costs, "o-", color=f"C{colour}")
            axes.axhline(average(one.random_mae for one in models), color="grey", ls=":")
            feed = average(zero.feed_forward[0].mae for zero in zeros)
            axes.axhline(feed, color="grey", ls="--")
            axes.set(title=variant, xlabel="head of the first layer, most costly first")
        both[0].set_ylabel("cost, bits of entropy error")
        caption = (
            "What each head of the first layer costs if set to zero, one line per seed; dotted: a "
            "random subspace as wide as a head; dashed: the feed-forward part."
        )
        return [Picture("costs", figure, caption, "Falling lines, one per seed.")]

    def exhibits(self, tier: Tier, found: Found) -> list[Exhibit]:
        rows = {
            f"{variant}, layer {layer}": [head.mae for head in heads]
            for variant in VARIANTS
            for layer, heads in enumerate(each(found, variant)[0].costs["zero"].heads)
        }
        columns = [f"head {head}" for head in range(len(next(iter(rows.values()))))]
        return [
            heatmap_exhibit(
                list(rows.values()),
                list(rows),
                columns,
                labels=("layer", "head"),
                unit="bits",
                title="Every head taken out",
                caption="Entropy error that a head costs when its output is set to zero, first "
                "seed.",
            )
        ]


def _most_costly(model: Predictor, tunnel: Tunnel, sequences: int) -> tuple[int, float, float]:
    """`head`, `times_next` and `times_whole` of `Ablated`."""
    halves = [
        tunnel.sample(sequences, torch.Generator().manual_seed(EVAL_SEED + half)) for half in (3, 4)
    ]
    heads = range(anatomy(model).attention(0).heads)
    cuts = [Cut(part="head", layer=0, head=head) for head in heads]
    costs: list[torch.Tensor] = []
    for half in halves:
        whole = errors(model, half)[1].mean()
        costs.append(torch.stack([errors(model, half, [cut])[1].mean() - whole for cut in cuts]))
    head = int(costs[0].argmax())
    own = float(costs[1][head])
    others = float(costs[1][torch.arange(len(heads)) != head].max())
    whole = float(errors(model, halves[1])[1].mean())
    # costs of nothing are rounding; a ratio of two of them would mean nothing
    return head, own / max(others, 1e-6), (whole + own) / whole


def _errors(loss: Loss | Ablations) -> Errors:
    return Errors(mae=loss.mae.value, kl=loss.kl.value)
