"""llm-causal: is the entropy axis read, or needed?

    order lost   fall of |Spearman|(first component, entropy) in the layers after a cut, beyond the
                 fall after cuts of random axes, as a share of the order there was
    cost         share of random cuts whose KL is at least that of a cut of the axis of equal size
    calibration  change of mean |H_model - H_pred|

In SULA prompts of fixed length. The axis is found anew in every later layer, after the cut: in the
cut layer itself it is gone by construction.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from bayesattn.claims.llm_subjects import subject
from bayesattn.claims.registry import register
from bayesattn.ledger.study import Claim, Numbers, Picture, Recipe, Study, Tier, Verdict
from bayesattn.ledger.summaries import average, by_seed, curve
from bayesattn.probes.llm.causal import Intervention, intervene
from bayesattn.probes.llm.sula import fixed_conditions
from bayesattn.probes.llm.sula_answers import answer, even_words, pick_labels, plain_encode
from bayesattn.stats import judge_all, judge_below, judge_effect, judge_given

MIDDLE, LAST, SEVERAL = "middle", "last", "several"
ORDERED = 0.3
"""Rank correlation in later layers without which there is nothing to lose."""
LOST = 0.5
"""Broken: half of the order is lost, beyond what any cut costs."""
RARE = 0.05
"""Needed: fewer random cuts than this cost as much."""
UNCHANGED = 0.05
"""Bits of entropy error."""


@dataclass(frozen=True, kw_only=True)
class CausalRecipe(Recipe):
    """Prompts, layers and axes; seeds are other prompts and other random axes."""

    each: int
    """Prompts for each difference of labels."""
    shots: int
    """Pairs in every prompt."""
    axes: int
    """Random axes."""
    depths: Mapping[str, tuple[float, ...]]
    """Cuts by name, and where in the model they are: 0 is the first layer, 1 the last."""


@register
class LLMCausal(Study[CausalRecipe, Numbers]):
    """Cuts the axis of SmolLM2's values, beside cuts of random axes."""

    claim = Claim(
        id="llm-causal",
        statement="Removing the entropy axis from the values of a layer breaks the geometry of "
        "later layers but not the model's behaviour: the axis is read, not needed.",
        source="Agarwal et al., Geometric Scaling of Bayesian Inference in LLMs, arXiv 2512.23752: "
        "sections 4.5, 4.6 and 5",
        reported="correlation of the cut values with entropy 0.27 to 0.32, after the cut about 0 "
        "(so by construction); errors change by less than 1%",
    )
    method = (
        "In SmolLM2-135M the first component of a middle layer's values is cut at every position "
        "while it reads SULA prompts of fixed length. In the layers after it the first component, "
        "found anew, must lose half of its rank correlation with the model's entropy beyond what "
        "cuts of random axes among the next components do; at least 5% of these must cost as much "
        "KL as a cut of the axis of the same size; and the error of the entropy must change by "
        "less than 0.05 bits. Cuts of the last layer and of several at once are recorded."
    )
    null = "Cuts of random axes in the span of components 2 to 10, orthogonal to the axis."
    recipes = MappingProxyType(
        {
            Tier.QUICK: CausalRecipe(seeds=2, each=6, shots=4, axes=20, depths={MIDDLE: (0.85,)}),
            Tier.FULL: CausalRecipe(
                seeds=3,
                each=8,
                shots=8,
                axes=100,
                depths={
                    MIDDLE: (0.5,),
                    LAST: (1.0,),
                    SEVERAL: (0.35, 0.5, 0.7, 0.85, 1.0),
                },
            ),
        }
    )

    def measure(self, tier: Tier, seed: int) -> Numbers:
        """Every cut of the recipe."""
        recipe = self.recipes[tier]
        model = subject()
        top = len(model.parts.layers) - 1
        cuts = {
            name: [round(depth * top) for depth in depths] for name, depths in recipe.depths.items()
        }
        shown, _ = fixed_conditions(
            even_words(plain_encode(model)),
            pick_labels(model),
            each=recipe.each,
            shots=recipe.shots,
            seed=seed,
        )
        layers = sorted({layer for several in cuts.values() for layer in several})
        answers = answer(model, shown, tuple(layers))
        numbers: dict[str, float | Sequence[float]] = {}
        for name, several in cuts.items():
            found = intervene(model, answers, several, axes=recipe.axes, seed=seed)
            numbers |= {f"{name}: {what}": value for what, value in _numbers(found).items()}
        return numbers

    def judge(self, tier: Tier, numbers: Mapping[int, Numbers]) -> Verdict:
        """Order lost, nothing else."""
        lost = judge_effect(by_seed(numbers, f"{MIDDLE}: order lost"), minimum=LOST)
        change = [abs(value) for value in by_seed(numbers, f"{MIDDLE}: error, change")]
        parts = {
            "order lost": lost,
            "random cuts that cost as much": judge_effect(
                by_seed(numbers, f"{MIDDLE}: matched"), minimum=RARE
            ),
            "change of the entropy error": judge_below(change, limit=UNCHANGED),
        }
        there = judge_effect(by_seed(numbers, f"{MIDDLE}: order before"), minimum=ORDERED)
        judgement = judge_given("Later values are ordered", there, judge_all(parts))
        reason = (
            f"{judgement.reason} Order in later layers {_mean(numbers, 'order before')}, after the "
            f"cut {_mean(numbers, 'order after')}, after random cuts "
            f"{_mean(numbers, 'order after random')}; KL {_mean(numbers, 'divergence', 4)} bits, "
            f"of random cuts {_mean(numbers, 'divergence, random', 4)}, of which "
            f"{_mean(numbers, 'matched')} cost as much at equal size."
        )
        return self.verdict(
            judgement._replace(reason=reason, value=lost.value, interval=lost.interval),
            tier=tier,
            seeds=tuple(numbers),
            unit="of the order in later layers lost, beyond random cuts",
            null=0.0,
        )

    def draw(self, tier: Tier, numbers: Mapping[int, Numbers]) -> list[Picture]:
        """Order in later layers, and what doses cost."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(8.4, 3), layout="constrained")
        order, dose = figure.subplots(1, 2)
        layers = curve(numbers, f"{MIDDLE}: later layers")
        for name, colour in (("before", "C2"), ("after", "C1"), ("after random", "C0")):
            values = curve(numbers, f"{MIDDLE}: order {name} by layer")
            label = {"before": "whole", "after": "axis cut"}.get(name, "random axes cut")
            order.plot(layers, values, "o-", ms=3, color=colour, label=label)
        order.set(xlabel="layer", ylabel="|ρ| of PC 1, found anew", ylim=(0, 1))
        order.legend(fontsize=8)
        for name in self.recipes[tier].depths:
            kept = curve(numbers, f"{name}: keeps")
            costs = curve(numbers, f"{name}: divergence by keep")
            dose.plot(kept, costs, "o-", ms=3, label=f"{name}, axis")
        dose.set(xlabel="part of the axis that is kept", ylabel="KL, bits")
        dose.legend(fontsize=8)
        caption = (
            "Left, rank correlation of the first component with the model's entropy in the layers "
            "after the cut; right, what cuts cost; means over draws of prompts."
        )
        return [Picture("cuts", figure, caption, "Curves over layers, and over doses.")]


def _numbers(found: Intervention) -> dict[str, float | Sequence[float]]:
    whole, cost = found.whole, found.against.divergence
    numbers: dict[str, float | Sequence[float]] = {
        "layers": [float(layer) for layer in found.layers],
        "prompts": found.prompts,
        "local correlation": [axis.correlation for axis in found.axes],
        "local order": [axis.order for axis in found.axes],
        "share": [axis.share for axis in found.axes],
        "local R² before": found.local_decodability[0],
        "local R² after": found.local_decodability[1],
        "divergence": cost.value,
        "divergence, random": cost.random,
        "divergence, z": cost.z or 0.0,
        "label divergence": found.against.label_divergence.value,
        "label divergence, random": found.against.label_divergence.random,
        "error before": found.before.error_predictive,
        "error, change": found.against.error.value,
        "error, change random": found.against.error.random,
        "correlation before": found.before.correlation,
        "correlation after": whole.correlation,
        "matched": found.matched,
        "relative size": found.relative_size,
        "keeps": list(found.doses),
        "divergence by keep": [one.divergence for one in found.doses.values()],
        "divergence by component": [one.divergence for one in found.components],
        "divergence by other edit": [one.divergence for one in found.edits.values()],
    }
    fall, readable = found.against.fall_of_order, found.against.fall_of_decodability
    if fall is None or readable is None:
        return numbers
    before, after = found.before.order, whole.order
    order = float(np.mean(before))
    return numbers | {
        "later layers": [float(layer) for layer in found.later],
        "order before by layer": before,
        "order after by layer": after,
        "order after random by layer": found.random_order,
        "order before": order,
        "order after": float(np.mean(after)),
        "order after random": order - fall.random,
        "order lost": (fall.value - fall.random) / max(order, 1e-9),
        "order lost, p": fall.p,
        "R² before": float(np.mean(found.before.decodability)),
        "R², fall": readable.value,
        "R², fall random": readable.random,
    }


def _mean(numbers: Mapping[int, Numbers], name: str, digits: int = 2) -> str:
    return f"{average(numbers, f'{MIDDLE}: {name}'):.{digits}f}"
