"""geometry-ffn: is it the feed-forward layers that compute the answer?

    gain = held-out R² of the entropy, read linearly from the residual stream after a sublayer,
           minus the same before it, each with a probe of its own

added up over layers, for feed-forward parts and for attention. A probe fitted before and used after
a sublayer only tells whether the code was turned.
"""

from collections.abc import Mapping, Sequence

import torch

from bayesattn.evals.fidelity import EVAL_SEED
from bayesattn.probes.ablation import Cut, errors
from bayesattn.probes.anatomy import anatomy
from bayesattn.probes.ffn import TARGETS, measure_sublayers, total_gain
from bayesattn.stats import judge_all, judge_effect
from bayesattn.studies.geometry_subjects import VARIANTS, GeometryStudy, Subject, subjects
from bayesattn.studies.registry import register
from bayesattn.studies.study import Claim, Numbers, Picture, Tier, Verdict
from bayesattn.studies.summaries import average, by_seed

FEED, ATTENTION = SUBLAYERS = ("feed-forward", "attention")


@register
class GeometryFFN(GeometryStudy):
    """Linear probes before and after every sublayer of trained models."""

    claim = Claim(
        id="geometry-ffn",
        statement="Feed-forward layers perform the numerical update of the posterior.",
        source="Agarwal et al., The Bayesian Geometry of Transformer Attention, arXiv 2512.22471: "
        "section 5, figures 3 and 13",
        reported="stated in the text; figure 13 has a change at the first attention layer and none "
        "at feed-forward layers",
    )
    method = (
        "In transformers trained on bijections, with and without returning keys, the gain in R² of "
        "the entropy of the posterior (linear probes, refitted, held-out sequences) over all "
        "feed-forward parts must exceed that over all attention parts. The same for the posterior "
        "itself, and the cost of taking away all parts of one kind, are recorded beside it."
    )
    null = "The same difference of gains in the network before training; equal gains are 0."

    def measure(self, tier: Tier, seed: int) -> Numbers:
        """Gains by sublayer and target, and costs of ablation."""
        recipe = self.recipes[tier]
        found: dict[str, float | Sequence[float]] = {}
        for variant, subject in subjects(tier, seed, recipe):
            model, initial, tunnel = subject
            trained, before = (
                measure_sublayers(one, tunnel, sequences=recipe.sequences)
                for one in (model, initial)
            )
            for target in TARGETS:
                for kind in SUBLAYERS:
                    found[f"{variant}: {kind} gain in {target} by layer"] = [
                        one.gain.value
                        for one in trained
                        if (one.sublayer, one.target) == (kind, target)
                    ]
                for name, probes in (("", trained), (" untrained", before)):
                    feed, attention = (total_gain(probes, kind, target) for kind in SUBLAYERS)
                    found[f"{variant}: {target} feed-forward minus attention{name}"] = (
                        feed - attention
                    )
            found |= _costs(variant, subject, recipe.sequences)
        return found

    def judge(self, tier: Tier, numbers: Mapping[int, Numbers]) -> Verdict:
        """Feed-forward parts must gain more than attention, with and without returning keys."""
        name = "entropy feed-forward minus attention"
        untrained = {
            variant: average(numbers, f"{variant}: {name} untrained") for variant in VARIANTS
        }
        parts = {
            variant: judge_effect(by_seed(numbers, f"{variant}: {name}")) for variant in VARIANTS
        }
        judgement = judge_all(parts)
        decided = next((v for v in VARIANTS if judgement.reason.startswith(v)), VARIANTS[0])
        costs = "; ".join(
            f"{variant}, {average(numbers, f'{variant}: no mlp'):.2g} bits more without "
            f"feed-forward parts, {average(numbers, f'{variant}: no heads'):.2g} without attention"
            for variant in VARIANTS
        )
        return self.verdict(
            judgement._replace(reason=f"{judgement.reason} Error: {costs}."),
            tier=tier,
            seeds=tuple(numbers),
            unit="R² gained by feed-forward parts beyond attention",
            null=untrained[decided],
        )

    def draw(self, tier: Tier, numbers: Mapping[int, Numbers]) -> list[Picture]:
        """Gains by layer."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(8, 3), layout="constrained")
        for axes, variant in zip(figure.subplots(1, 2, sharey=True), VARIANTS, strict=True):
            for colour, kind in enumerate(SUBLAYERS):
                for measured in numbers.values():
                    gains = measured[f"{variant}: {kind} gain in entropy by layer"]
                    assert isinstance(gains, Sequence)
                    places = [
                        layer + (0.15 if kind == FEED else -0.15) for layer in range(len(gains))
                    ]
                    axes.plot(places, gains, "o", color=f"C{colour}", alpha=0.7)
            axes.axhline(0, color="grey", lw=1)
            axes.set(title=variant, xlabel="layer (left: attention, right: feed-forward)")
        figure.axes[0].set_ylabel("gain in R² of the entropy")
        caption = "What a linear probe gains from each sublayer; a point is a seed."
        return [Picture("gains", figure, caption, "Points by layer and sublayer, two panels.")]


def _costs(variant: str, subject: Subject, sequences: int) -> dict[str, float]:
    """Entropy error, bits, beyond the whole model's, without all parts of one kind."""
    model, _, tunnel = subject
    batch = tunnel.sample(sequences, torch.Generator().manual_seed(EVAL_SEED))
    whole = errors(model, batch)[1].mean()
    layers = range(len(anatomy(model).layers))
    all_of = {
        "heads": [Cut(part="heads", layer=layer) for layer in anatomy(model).attending],
        "mlp": [Cut(part="mlp", layer=layer) for layer in layers],
    }
    return {
        f"{variant}: no {part}": float(errors(model, batch, cuts)[1].mean() - whole)
        for part, cuts in all_of.items()
    }
