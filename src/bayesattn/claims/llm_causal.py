"""llm-causal: is the entropy axis read, or needed?

    order lost   fall of |Spearman|(first component, entropy) in the layers after a cut, beyond the
                 fall after cuts of random axes, as a share of the order there was
    cost         share of random cuts whose KL is at least that of a cut of the axis of equal size
    calibration  change of mean |H_model - H_pred|

In SULA prompts of fixed length. The axis is found anew in every later layer, after the cut: in the
cut layer itself it is gone by construction.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from bayesattn.claims.llm_values import subject
from bayesattn.claims.panels import mean_curve, panels
from bayesattn.claims.registry import register
from bayesattn.ledger.study import Picture, Recipe, Study, Tier
from bayesattn.ledger.typed import Stored
from bayesattn.probes.llm.causal import Damage, Intervention, intervene
from bayesattn.probes.llm.interventions import Axis
from bayesattn.probes.llm.sula import fixed_conditions
from bayesattn.probes.llm.sula_answers import answer, even_words, pick_labels, plain_encode

MIDDLE = "middle"
"""The cut that is judged."""


class CausalRecipe(Recipe):
    """Prompts, layers and axes; seeds are other prompts and other random axes."""

    each: int
    """Prompts for each difference of labels."""
    shots: int
    """Pairs in every prompt."""
    axes: int
    depths: Mapping[str, tuple[float, ...]]
    """Cuts by name, and where in the model they are: 0 is the first layer, 1 the last."""


class Later(Stored):
    """Layers after the cut: |Spearman| of the first component, found anew, with the entropy."""

    layers: Sequence[int]
    order: Sequence[float]
    """As it is, by layer."""
    order_after: Sequence[float]
    order_random: Sequence[float]
    """Mean after random cuts."""
    decodability: float
    """R² of the entropy, mean over layers."""

    @property
    def lost(self) -> float:
        """Share of the order that is lost beyond random cuts."""
        before, after, random = map(np.mean, (self.order, self.order_after, self.order_random))
        return float((random - after) / max(before, 1e-9))


class AxisCut(Stored):
    """One or several layers that lose their axis together; divergences are in bits."""

    prompts: int
    axes: Sequence[Axis]
    local_decodability: tuple[float, float]
    """R² of the entropy in the first of these layers, and without the axis."""
    against: Damage
    error: float
    """Of the entropy, before."""
    correlation: tuple[float, float]
    """Of the model's entropy and H_pred, before and after."""
    matched: float
    """Share of random cuts that cost as much at equal size."""
    relative_size: float
    doses: Mapping[float, float]
    """Divergence by the part of the axis that is kept."""
    components: Sequence[float]
    """Divergence of cuts of the next components."""
    edits: Mapping[str, float]
    """Divergence of nothing but the axis, and of shifts along it."""
    later: Later | None
    """None if the last layer is the first that is cut."""


Found = Mapping[int, Mapping[str, AxisCut]]


@register("llm-causal")
class LLMCausal(Study[CausalRecipe, Mapping[str, AxisCut]]):
    """Cuts the axis of SmolLM2's values, beside cuts of random axes."""

    def measure(self, tier: Tier, seed: int) -> Mapping[str, AxisCut]:
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
        return {
            name: as_cut(intervene(model, answers, several, axes=recipe.axes, seed=seed))
            for name, several in cuts.items()
        }

    def draw(self, tier: Tier, found: Found) -> list[Picture]:
        figure, (order, dose) = panels(2, (8.4, 3))
        later = {seed: one[MIDDLE].later for seed, one in found.items()}
        known = {seed: one for seed, one in later.items() if one is not None}
        curves: dict[str, Callable[[Later], Sequence[float]]] = {
            "whole": lambda one: one.order,
            "axis cut": lambda one: one.order_after,
            "random axes cut": lambda one: one.order_random,
        }
        for (label, curve), colour in zip(curves.items(), ("C2", "C1", "C0"), strict=True):
            layers = mean_curve(known, lambda one: one.layers)
            order.plot(layers, mean_curve(known, curve), "o-", ms=3, color=colour, label=label)
        order.set(xlabel="layer", ylabel="|ρ| of PC 1, found anew", ylim=(0, 1))
        order.legend(fontsize=8)
        for name in self.recipes[tier].depths:
            kept = list(next(iter(found.values()))[name].doses)
            costs = mean_curve(found, lambda one, name=name: [*one[name].doses.values()])
            dose.plot(kept, costs, "o-", ms=3, label=f"{name}, axis")
        dose.set(xlabel="part of the axis that is kept", ylabel="KL, bits")
        dose.legend(fontsize=8)
        caption = (
            "Left, rank correlation of the first component with the model's entropy in the layers "
            "after the cut; right, what cuts cost; means over draws of prompts."
        )
        return [Picture("cuts", figure, caption, "Curves over layers, and over doses.")]


def as_cut(found: Intervention) -> AxisCut:
    before, after = found.before, found.whole
    later = Later(
        layers=found.later,
        order=before.order,
        order_after=after.order,
        order_random=found.random_order,
        decodability=float(np.mean(before.decodability)) if found.later else 0.0,
    )
    return AxisCut(
        prompts=found.prompts,
        axes=found.axes,
        local_decodability=found.local_decodability,
        against=found.against,
        error=before.error_predictive,
        correlation=(before.correlation, after.correlation),
        matched=found.matched,
        relative_size=found.relative_size,
        doses={keep: effect.divergence for keep, effect in found.doses.items()},
        components=[effect.divergence for effect in found.components],
        edits={name: effect.divergence for name, effect in found.edits.items()},
        later=later if found.later else None,
    )
