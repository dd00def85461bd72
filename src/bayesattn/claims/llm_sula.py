"""llm-sula: does evidence in context move values along their entropy axis?

    order = |Spearman| of the first component of the last layer's values at the last token with the
            entropy that the labels of the prompt leave

where all prompts have eight pairs and equally many tokens: with the number of pairs the length
changes, too, and prompts without any pair are a cluster of their own.
"""

from collections.abc import Callable, Mapping

from bayesattn.claims.llm_values import subject
from bayesattn.claims.panels import draw_rows, mean_curve, panels
from bayesattn.claims.registry import register
from bayesattn.ledger.study import Picture, Recipe, Study, Tier, Value
from bayesattn.ledger.typed import Stored
from bayesattn.models.open import DEFAULT
from bayesattn.probes.llm.sula import BLIND, CONTROLS, FIXED, MAIN
from bayesattn.probes.llm.sula_examination import Movement, SulaFound, examine_sula
from bayesattn.probes.measured import Measured

TRIVIAL = "always 1 bit"


class SulaRecipe(Recipe):
    """Which model, and how many prompts; seeds are other prompts for it."""

    model: str = DEFAULT
    prompts: int
    """For each number of pairs."""
    each: int
    """Of fixed length, for each difference of labels."""
    controls: bool
    """Measure all controls, too."""


class Entropies(Stored):
    """Means over prompts, in bits."""

    model: float
    posterior: float
    predictive: float


class Asked(Stored):
    """One condition: how values move, and errors of the model's entropy in bits."""

    centred: Movement
    standardised: Movement
    error_posterior: Measured
    error_predictive: Measured
    correlation_posterior: float | None
    correlation_predictive: float | None
    mass: float
    """Probability of both labels."""
    by_shots: Mapping[int, Entropies]
    """By number of pairs; empty where it is fixed."""


class SulaMeasured(Stored):
    """All conditions of one draw of prompts."""

    main: Asked
    """The authors' design: the number of pairs varies."""
    fixed: Asked
    """All prompts equally long."""
    blind: Asked
    """The same with the labels masked."""
    controls: Mapping[str, Asked]


@register("llm-sula-gemma")
@register("llm-sula")
class LLMSula(Study[SulaRecipe, SulaMeasured]):
    """Labels in context, beside the exact posterior."""

    def measure(self, tier: Tier, seed: int) -> SulaMeasured:
        recipe = self.recipes[tier]
        controls = CONTROLS if recipe.controls else ()
        found, _ = examine_sula(
            subject(recipe.model),
            prompts=recipe.prompts,
            each=recipe.each,
            controls=controls,
            seed=seed,
        )
        return SulaMeasured(
            main=_asked(found, MAIN),
            fixed=_asked(found, FIXED),
            blind=_asked(found, BLIND),
            controls={name: _asked(found, name) for name in controls},
        )

    def values(self, tier: Tier, one: SulaMeasured) -> Mapping[str, Value]:
        main, fixed, masked = (asked.centred for asked in (one.main, one.fixed, one.blind))
        infers = one.fixed.error_predictive
        own, nothing = _value(fixed.order), _value(masked.order)
        return {
            "pairs-vary": Value(_value(main.order), nothing),
            "fixed-length": Value(own - nothing, nothing, infers.value < infers.nulls[TRIVIAL]),
            "own-entropy": Value(_value(fixed.own) - _value(masked.own), _value(masked.own)),
        }

    def draw(self, tier: Tier, found: Mapping[int, SulaMeasured]) -> list[Picture]:
        figure, (orders, entropies) = panels(2, (8.4, 3))
        every = list(found.values())
        rows = {
            "pairs vary": [_value(one.main.centred.order) for one in every],
            "pairs vary, given k": [_value(one.main.centred.given_shots) for one in every],
            "fixed length": [_value(one.fixed.centred.order) for one in every],
            "labels masked": [_value(one.blind.centred.order) for one in every],
        }
        draw_rows(orders, rows)
        orders.set(xlabel="|ρ| of PC 1 and entropy", xlim=(0, 1))
        pairs = list(every[0].main.by_shots)
        curves: dict[str, Callable[[Entropies], float]] = {
            "H model": lambda at: at.model,
            "H_post": lambda at: at.posterior,
            "H_pred": lambda at: at.predictive,
        }
        for (name, value), style in zip(curves.items(), ("o-", ":", "--"), strict=True):
            curve = mean_curve(found, lambda one, v=value: [*map(v, one.main.by_shots.values())])
            entropies.plot(range(len(pairs)), curve, style, label=name)
        entropies.set_xticks(range(len(pairs)), list(map(str, pairs)))
        entropies.set(xlabel="pairs shown", ylabel="entropy, bits", ylim=(0, 1.05))
        entropies.legend(fontsize=8)
        caption = (
            "Left, rank correlation of the first component of the last values with the entropy of "
            "the posterior, a point per draw of prompts. Right, "
            "the model's entropy over the labels, that of the posterior and of the predictive."
        )
        return [Picture("order", figure, caption, "Points by condition; curves over the pairs.")]


def _asked(found: SulaFound, name: str) -> Asked:
    whole, *each = [one for one in found.calibration if one.condition == name]
    centred, standardised = [one for one in found.movement if one.condition == name]
    return Asked(
        centred=centred,
        standardised=standardised,
        error_posterior=whole.error_posterior,
        error_predictive=whole.error_predictive,
        correlation_posterior=whole.correlation_posterior,
        correlation_predictive=whole.correlation_predictive,
        mass=whole.mass,
        by_shots={
            one.shots or 0: Entropies(
                model=one.model.value, posterior=one.posterior, predictive=one.predictive
            )
            for one in each
        },
    )


def _value(order: Measured | None) -> float:
    """0 where there is no order to speak of."""
    return 0.0 if order is None else order.value
