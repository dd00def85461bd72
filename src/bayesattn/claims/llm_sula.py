"""llm-sula: does evidence in context move values along their entropy axis?

    order = |Spearman| of the first component of the last layer's values at the last token with the
            entropy that the labels of the prompt leave

where all prompts have eight pairs and equally many tokens: with the number of pairs the length
changes, too, and prompts without any pair are a cluster of their own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from bayesattn.claims.llm_subjects import subject
from bayesattn.claims.registry import register
from bayesattn.ledger.study import Claim, Numbers, Picture, Recipe, Study, Tier, Verdict
from bayesattn.ledger.summaries import average, by_seed, curve
from bayesattn.probes.llm.sula import BLIND, CONTROLS, FIXED, MAIN
from bayesattn.probes.llm.sula_examination import SulaFound, examine_sula
from bayesattn.stats import judge_effect

MOVED = 0.3
"""Ordered: correlated by so much more than where the labels are masked."""
JUDGED = f"{FIXED}: order"
NULL = f"{BLIND}: order"


@dataclass(frozen=True, kw_only=True)
class SulaRecipe(Recipe):
    """How many prompts; seeds are other prompts for the same model."""

    prompts: int
    """For each number of pairs."""
    each: int
    """Of fixed length, for each difference of labels."""
    controls: bool
    """Measure all controls, too."""


@register
class LLMSula(Study[SulaRecipe, Numbers]):
    """Labels in context for SmolLM2, beside the exact posterior."""

    claim = Claim(
        id="llm-sula",
        statement="In-context evidence moves the late values of a production language model along "
        "an axis that is ordered by the entropy of the posterior.",
        source="Agarwal et al., Geometric Scaling of Bayesian Inference in LLMs, arXiv 2512.23752: "
        "sections 4.3 and 5.2",
        reported="|ρ| of 0.65 to 0.80 over prompts with 0 to 8 pairs, whose length goes with k; "
        "entropy errors of 0.31 to 0.44 bits against the posterior",
    )
    method = (
        "SmolLM2-135M reads eight word-label pairs with 0 to 8 more labels of one kind than of "
        "the other, all prompts equally long. Over these prompts the first principal component of "
        "the last layer's values (centred) at the last token must have a rank correlation with the "
        "entropy of the exact posterior that is 0.3 larger than with masked labels. Recorded "
        "beside it: the authors' design with 0 to 8 pairs and its controls, orders within a number "
        "of pairs, and calibration against the posterior and the posterior predictive."
    )
    null = "The same prompts with every label masked: all words are there, the evidence is not."
    recipes = MappingProxyType(
        {
            Tier.QUICK: SulaRecipe(seeds=2, prompts=8, each=8, controls=False),
            Tier.FULL: SulaRecipe(seeds=5, prompts=50, each=20, controls=True),
        }
    )

    def measure(self, tier: Tier, seed: int) -> Numbers:
        """Orders and calibration of every condition."""
        recipe = self.recipes[tier]
        found = examine_sula(
            subject(),
            prompts=recipe.prompts,
            each=recipe.each,
            controls=CONTROLS if recipe.controls else (),
            seed=seed,
        )
        return _orders(found) | _calibrations(found)

    def judge(self, tier: Tier, numbers: Mapping[int, Numbers]) -> Verdict:
        """Fixed length against masked labels."""
        masked = average(numbers, NULL)
        judgement = judge_effect(by_seed(numbers, JUDGED), null=masked, minimum=MOVED)
        reason = (
            f"{judgement.reason} Where the number of pairs varies, order "
            f"{average(numbers, f'{MAIN}: order'):.2f}, given that number "
            f"{average(numbers, f'{MAIN}: order given k'):.2f}. Entropy errors at fixed length: "
            f"{average(numbers, f'{FIXED}: error H_post'):.2f} bits to the posterior, "
            f"{average(numbers, f'{FIXED}: error H_pred'):.2f} to the predictive."
        )
        return self.verdict(
            judgement._replace(reason=reason),
            tier=tier,
            seeds=tuple(numbers),
            unit="|rank correlation| at fixed length",
            null=masked,
        )

    def draw(self, tier: Tier, numbers: Mapping[int, Numbers]) -> list[Picture]:
        """Order by condition, and entropy by number of pairs."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(8.4, 3), layout="constrained")
        orders, entropies = figure.subplots(1, 2)
        shown = {
            "pairs vary": f"{MAIN}: order",
            "pairs vary, given k": f"{MAIN}: order given k",
            "fixed length": JUDGED,
            "labels masked": NULL,
        }
        for row, name in enumerate(shown.values()):
            values = by_seed(numbers, name)
            orders.plot(values, [row] * len(values), "o", color="C1" if name == NULL else "C0")
        orders.axvline(average(numbers, NULL) + MOVED, color="grey", ls=":")
        orders.set(xlabel="|ρ| of PC 1 and entropy", xlim=(0, 1))
        orders.set_yticks(range(len(shown)), shown)
        pairs = curve(numbers, f"{MAIN}: k")
        for name, style in (("H model", "o-"), ("H_post", ":"), ("H_pred", "--")):
            entropies.plot(
                range(len(pairs)), curve(numbers, f"{MAIN}: {name} by k"), style, label=name
            )
        entropies.set_xticks(range(len(pairs)), [f"{k:g}" for k in pairs])
        entropies.set(xlabel="pairs shown", ylabel="entropy, bits", ylim=(0, 1.05))
        entropies.legend(fontsize=8)
        caption = (
            "Left, rank correlation of the first component of the last values with the entropy of "
            "the posterior, a point per draw of prompts; dotted: what the claim needs. Right, "
            "the model's entropy over the labels, that of the posterior and of the predictive."
        )
        return [Picture("order", figure, caption, "Points by condition; curves over the pairs.")]


def _orders(found: SulaFound) -> dict[str, float | Sequence[float]]:
    numbers: dict[str, float | Sequence[float]] = {}
    for one in found.movements:
        name = f"{one.condition}: " + ("" if one.axis == "centred" else f"{one.axis} ")
        numbers[f"{name}share"] = one.share
        measured = {"order": one.order, "order given k": one.given_shots, "own order": one.own}
        measured |= {f"order at k = {k}": at for k, at in one.by_shots.items()}
        for what, order in measured.items():
            if order is not None:
                numbers[f"{name}{what}"] = order.value
                numbers[f"{name}{what} exchanged"] = order.nulls["exchanged"]
        for what, value in (("rank correlation with k", one.shots), ("with length", one.length)):
            if value is not None:
                numbers[f"{name}{what}"] = value
    return numbers


def _calibrations(found: SulaFound) -> dict[str, float | Sequence[float]]:
    numbers: dict[str, float | Sequence[float]] = {}
    for name in dict.fromkeys(one.condition for one in found.calibrations):
        whole, *each = [one for one in found.calibrations if one.condition == name]
        numbers |= {
            f"{name}: error H_post": whole.error_posterior.value,
            f"{name}: error H_pred": whole.error_predictive.value,
            f"{name}: error H_post, ideal": whole.error_posterior.nulls["ideal predictions"],
            f"{name}: error H_post, always 1 bit": whole.error_posterior.nulls["always 1 bit"],
            f"{name}: error H_pred, always 1 bit": whole.error_predictive.nulls["always 1 bit"],
            f"{name}: label mass": whole.mass,
        }
        for target, value in (
            ("H_post", whole.correlation_posterior),
            ("H_pred", whole.correlation_predictive),
        ):
            if value is not None:
                numbers[f"{name}: correlation {target}"] = value
        if each:
            numbers |= {
                f"{name}: k": [float(one.shots or 0) for one in each],
                f"{name}: H model by k": [one.model.value for one in each],
                f"{name}: H_post by k": [one.posterior for one in each],
                f"{name}: H_pred by k": [one.predictive for one in each],
            }
    return numbers
