"""geometry-frame-head: is there one head of the first layer that the model cannot do without?

    cost of a head = error with its output set to zero - error of the whole model

The head is chosen on one half of the sequences and its cost measured on the other, so that luck
does not choose itself. All conditions see the same sequences.
"""

from collections.abc import Mapping, Sequence
from itertools import count

import torch

from bayesattn.claims.geometry_subjects import VARIANTS, GeometryStudy, Subject, listed, subjects
from bayesattn.claims.registry import register
from bayesattn.evals.fidelity import EVAL_SEED
from bayesattn.ledger.exhibits import heatmap_exhibit
from bayesattn.ledger.study import Exhibit, Numbers, Picture, Tier, Verdict
from bayesattn.ledger.summaries import average, by_seed, curve, first
from bayesattn.probes.ablation import KINDS, Cut, errors, measure_ablations
from bayesattn.probes.anatomy import anatomy
from bayesattn.stats import Judgement, judge_all, judge_effect

RATIO = 10.0
"""Catastrophic: the authors' word for an error that grows more than so many times."""
DOMINANCE = 2.0
"""One head: it costs at least so many times what the next one does."""


@register("geometry-frame-head")
class GeometryFrameHead(GeometryStudy[Numbers]):
    """Takes away each head of trained models in turn."""

    def measure(self, tier: Tier, seed: int) -> Numbers:
        """Costs of everything, and of the chosen head on fresh sequences."""
        recipe = self.recipes[tier]
        found: dict[str, float | Sequence[float]] = {}
        for variant, subject in subjects(tier, seed, recipe):
            found |= _chosen(variant, subject, recipe.sequences)
            found |= _everything(variant, subject, recipe.sequences)
        return found

    def judge(self, tier: Tier, numbers: Mapping[int, Numbers]) -> Verdict:
        """Catastrophic and alone, with and without returning keys."""
        parts: dict[str, Judgement] = {}
        nulls: dict[str, tuple[str, float]] = {}
        for variant in VARIANTS:
            alone, worse = f"{variant}, against the next head", f"{variant}, error"
            parts[alone] = judge_effect(
                by_seed(numbers, f"{variant}: times next"), minimum=DOMINANCE
            )
            nulls[alone] = ("times the cost of the next head", 1.0)
            parts[worse] = judge_effect(by_seed(numbers, f"{variant}: times whole"), minimum=RATIO)
            nulls[worse] = (
                "times the whole model's error",
                average(numbers, f"{variant}: random times whole"),
            )
        judgement = judge_all(parts)
        # without a name in front all parts hold, and the first one speaks for them
        said = (name for name in parts if judgement.reason.startswith(name))
        decided = next(said, next(iter(parts)))
        unit, null = nulls[decided]
        times = ", ".join(
            f"{average(numbers, f'{variant}: times whole'):.3g} if {variant}"
            for variant in VARIANTS
        )
        reason = f"{judgement.reason} Without it the error is this many times larger: {times}."
        return self.verdict(
            judgement._replace(reason=reason),
            tier=tier,
            seeds=tuple(numbers),
            unit=unit,
            null=null,
        )

    def draw(self, tier: Tier, numbers: Mapping[int, Numbers]) -> list[Picture]:
        """Costs of first-layer heads in order."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(8, 3), layout="constrained")
        for axes, variant in zip(figure.subplots(1, 2, sharey=True), VARIANTS, strict=True):
            for colour, measured in enumerate(numbers.values()):
                costs = sorted(listed(measured, f"{variant}: L0 mae zero by head"), reverse=True)
                axes.plot(range(1, len(costs) + 1), costs, "o-", color=f"C{colour}")
            axes.axhline(average(numbers, f"{variant}: random mae"), color="grey", ls=":")
            feed = curve(numbers, f"{variant}: mlp mae zero by layer")[0]
            axes.axhline(feed, color="grey", ls="--")
            axes.set(title=variant, xlabel="head of the first layer, most costly first")
        figure.axes[0].set_ylabel("cost, bits of entropy error")
        caption = (
            "What each head of the first layer costs if set to zero, one line per seed; dotted: a "
            "random subspace as wide as a head; dashed: the feed-forward part."
        )
        return [Picture("costs", figure, caption, "Falling lines, one per seed.")]

    def exhibits(self, tier: Tier, numbers: Mapping[int, Numbers]) -> list[Exhibit]:
        """What every head costs, in every layer."""
        measured = first(numbers)
        rows: dict[str, list[float]] = {}
        for variant in VARIANTS:
            for layer in count():
                if (name := f"{variant}: L{layer} mae zero by head") not in measured:
                    break
                rows[f"{variant}, layer {layer}"] = listed(measured, name)
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


def _chosen(variant: str, subject: Subject, sequences: int) -> dict[str, float]:
    model, _, tunnel = subject
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
    return {
        f"{variant}: times next": own / max(others, 1e-6),
        f"{variant}: times whole": (whole + own) / whole,
        f"{variant}: head": float(head),
    }


def _everything(
    variant: str, subject: Subject, sequences: int
) -> dict[str, float | Sequence[float]]:
    model, _, tunnel = subject
    batch = tunnel.sample(sequences, torch.Generator().manual_seed(EVAL_SEED))
    table = measure_ablations(model, batch)
    layers = range(len(anatomy(model).layers))
    random = table.find("head", 0, 0).mae.nulls["random subspace"]
    found: dict[str, float | Sequence[float]] = {
        f"{variant}: mae": table.mae.value,
        f"{variant}: kl": table.kl.value,
        f"{variant}: random mae": random,
        f"{variant}: random times whole": (table.mae.value + random) / table.mae.value,
        f"{variant}: bypass mae by layer": [
            table.find("layer", layer, kind="bypass").mae.value for layer in layers
        ],
    }
    for kind in KINDS:
        for layer in anatomy(model).attending:
            heads = range(anatomy(model).attention(layer).heads)
            own = [table.find("head", layer, head, kind) for head in heads]
            found[f"{variant}: L{layer} mae {kind} by head"] = [loss.mae.value for loss in own]
            found[f"{variant}: L{layer} kl {kind} by head"] = [loss.kl.value for loss in own]
        for part in ("heads", "mlp"):
            where = anatomy(model).attending if part == "heads" else layers
            own = [table.find(part, layer, kind=kind) for layer in where]
            found[f"{variant}: {part} mae {kind} by layer"] = [loss.mae.value for loss in own]
            found[f"{variant}: {part} kl {kind} by layer"] = [loss.kl.value for loss in own]
    return found
