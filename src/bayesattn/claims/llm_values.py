"""llm-values: do values of a language model lie along an axis that its uncertainty orders?

    share   of the variance of the last layer's values on their first two components
    order   |Spearman| of the first component with the entropy of the next token

Values are those of the value projection at the last token, all key/value heads side by side,
columns standardised. A seed is a draw of prompts, none of which is in two draws.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from bayesattn.claims.llm_subjects import MODEL, subject
from bayesattn.claims.registry import register
from bayesattn.ledger.study import Claim, Numbers, Picture, Recipe, Study, Tier, Verdict
from bayesattn.ledger.summaries import average, by_seed
from bayesattn.probes.llm.axes import SHARE, SPEARMAN, TWO
from bayesattn.probes.llm.capture import capture_prompts
from bayesattn.probes.llm.prompts import MIXED, draw, entropy_of
from bayesattn.probes.states import CONTROL, KINDS, measure_states
from bayesattn.stats import judge_all, judge_effect

LEAST_SHARE = 0.30
"""The authors' own mark for a dominant axis, on one component or two."""
LEAST_ORDER = 0.2
"""Ordered: correlated by so much more than with fresh weights."""


@dataclass(frozen=True, kw_only=True)
class ValuesRecipe(Recipe):
    """Which model, and how many prompts."""

    model: str = MODEL
    source: str = MIXED
    length: int = 32
    candidates: int = 240
    each: int = 15
    """Prompts from every fifth of the entropies."""
    draws: int = 200


@register
class LLMValues(Study[ValuesRecipe, Numbers]):
    """Principal components of values at the last token of prompts, beside fresh weights."""

    claim = Claim(
        id="llm-values",
        statement="In a language model the values of the last layer lie along a dominant axis that "
        "predictive entropy orders.",
        source="Agarwal et al., Geometric Scaling of Bayesian Inference in LLMs, arXiv 2512.23752: "
        "section 5.1, table 1",
        reported="PC 1 and 2 together 51 to 99.7% of the variance, |Spearman| 0.32 to 0.59 (three "
        "models, 75 mixed prompts)",
    )
    method = (
        "SmolLM2-135M-Instruct reads prompts of one length, cut out of text of five kinds, as many "
        "from each fifth of its predictive entropies. The first two principal components of the "
        "last layer's values, columns standardised, must hold more than 30% of the variance, the "
        "authors' own mark, and more than in the same network with fresh weights; and the rank "
        "correlation of the first with entropy must be 0.2 above that of fresh weights. Outputs of "
        "heads, residuals, centred columns, unit length and norms are recorded beside it."
    )
    null = (
        "The same network with fresh weights on the same prompts; noise, shuffled columns and "
        "entropies of other prompts are recorded beside it."
    )
    recipes = MappingProxyType(
        {
            Tier.QUICK: ValuesRecipe(seeds=2, length=16, candidates=80, each=10),
            Tier.FULL: ValuesRecipe(seeds=5),
            Tier.PAPER: ValuesRecipe(seeds=5, candidates=1000, draws=1000),
        }
    )

    def measure(self, tier: Tier, seed: int) -> Numbers:
        """Every quantity of every kind of state in the last layer."""
        recipe = self.recipes[tier]
        model = subject(recipe.model)
        prompts = draw(
            model,
            recipe.source,
            length=recipe.length,
            candidates=recipe.candidates,
            each=recipe.each,
            seed=seed,
        )
        names = [*KINDS, "logits"]
        own = capture_prompts(model, prompts.tokens, names)
        # fresh weights of their own for each seed, so that no single draw of them decides
        fresh = capture_prompts(subject(recipe.model, seed), prompts.tokens, names)
        bits, fresh_bits = entropy_of(own.logits), entropy_of(fresh.logits)
        found: dict[str, float] = {
            "lowest entropy, bits": float(bits.min()),
            "highest entropy, bits": float(bits.max()),
            "spread of entropy, fresh weights": float(fresh_bits.std()),
            "different last tokens": len({tokens[-1] for tokens in prompts.tokens}),
        }
        last = len(own.values) - 1
        for kind in KINDS:
            states = measure_states(
                getattr(own, kind)[last],
                bits,
                layer=last,
                kind=kind,
                sources=prompts.sources,
                control=(getattr(fresh, kind)[last], fresh_bits),
                draws=recipe.draws,
            )
            for name, measured in states.measured.items():
                found[f"{kind}: {name}"] = measured.value
                found |= {f"{kind}: {name}, {null}": x for null, x in measured.nulls.items()}
                if measured.p is not None:
                    found[f"{kind}: {name}, p"] = measured.p
        return found

    def judge(self, tier: Tier, numbers: Mapping[int, Numbers]) -> Verdict:
        """An axis, more of one than without training, and its order."""
        two, order = f"values: {TWO}", f"values: {SPEARMAN}"
        fresh_two = average(numbers, f"{two}, {CONTROL}")
        fresh_order = average(numbers, f"{order}, {CONTROL}")
        parts = {
            "share of two components": judge_effect(by_seed(numbers, two), minimum=LEAST_SHARE),
            "share beside fresh weights": judge_effect(by_seed(numbers, two), null=fresh_two),
            "order": judge_effect(by_seed(numbers, order), null=fresh_order, minimum=LEAST_ORDER),
        }
        judgement = judge_all(parts)
        ordered = judgement.reason.startswith("order")
        noise = average(numbers, f"{two}, noise")
        reason = (
            f"{judgement.reason} Shares: {average(numbers, f'values: {SHARE}'):.2f} on the first, "
            f"{average(numbers, two):.2f} on two (noise {noise:.2f}, fresh weights "
            f"{fresh_two:.2f}); order {average(numbers, order):.2f} (fresh weights "
            f"{fresh_order:.2f})."
        )
        return self.verdict(
            judgement._replace(reason=reason),
            tier=tier,
            seeds=tuple(numbers),
            unit="|Spearman| with entropy" if ordered else "of the variance on two axes",
            null=fresh_order if ordered else fresh_two,
        )

    def draw(self, tier: Tier, numbers: Mapping[int, Numbers]) -> list[Picture]:
        """Share and order of each kind of state."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(8, 2.6), layout="constrained")
        panels = {TWO: "variance on two components", SPEARMAN: "|Spearman| with entropy"}
        for axes, (name, label) in zip(
            figure.subplots(1, 2, sharey=True), panels.items(), strict=True
        ):
            for row, kind in enumerate(KINDS):
                where = f"{kind}: {name}"
                trained = by_seed(numbers, where)
                fresh = by_seed(numbers, f"{where}, {CONTROL}")
                axes.plot(fresh, [row - 0.1] * len(fresh), "s", color="C1", alpha=0.7)
                axes.plot(trained, [row + 0.1] * len(trained), "o", color="C0", alpha=0.8)
            axes.set(xlabel=label, xlim=(0, 1))
            axes.set_yticks(range(len(KINDS)), KINDS)
            if name == TWO:
                axes.axvline(LEAST_SHARE, color="grey", ls=":")
        caption = (
            "States of the last layer at the last token: circles as trained, squares with fresh "
            "weights; dotted: the authors' mark; a point is a draw of prompts."
        )
        return [Picture("states", figure, caption, "Points by kind of state, two panels.")]
