"""llm-values: do values of a language model lie along an axis that its uncertainty orders?

    order       |Spearman| of the first component with the entropy of the next token
    decodable   R² of that entropy from the values, on prompts that the fit has not seen

Values are those of the value projection at the last token, all key/value heads side by side,
columns standardised. A seed is a draw of prompts, none of which is in two draws.
"""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from bayesattn.claims.panels import draw_measured, panels
from bayesattn.claims.registry import register
from bayesattn.errors import UserError
from bayesattn.ledger.study import Picture, Recipe, Study, Tier, Value
from bayesattn.ledger.typed import Stored
from bayesattn.models.open import DEFAULT
from bayesattn.probes.llm.capture import capture_prompts
from bayesattn.probes.llm.prompts import MIXED, entropy_of, sample
from bayesattn.probes.llm.subject import Subject, load
from bayesattn.probes.measured import Measured
from bayesattn.probes.states import CONTROL, DECODABILITY, SPEARMAN, measure_states

GEMMA = "models/gemma-3-270m.gguf"
KINDS = ("values", "outputs", "residual")


@lru_cache(maxsize=2)
def subject(model: str = DEFAULT, random_init: int | None = None) -> Subject:
    """A model, or the same network with fresh weights of a seed; loaded once for all claims."""
    if model == GEMMA and not Path(model).exists():
        raise UserError(f"There is no {model} here: `make models` fetches it, from a clone.")
    return load(model, random_init=random_init)


class ValuesRecipe(Recipe):
    """Which model, and how many prompts."""

    model: str = DEFAULT
    source: str = MIXED
    length: int = 32
    candidates: int = 240
    each: int = 15
    """Prompts from every fifth of the entropies."""
    draws: int = 200


class ValuesFound(Stored):
    """States of the last layer at the last token, for the prompts of one draw.

    Measurements by the names of `probes/states.py`.
    """

    lowest_bits: float
    """Entropy of the next token after the prompts."""
    highest_bits: float
    fresh_spread: float
    """Standard deviation of the same entropy with fresh weights."""
    endings: int
    """Different last tokens."""
    values: Mapping[str, Measured]
    outputs: Mapping[str, Measured]
    residual: Mapping[str, Measured]


@register("llm-values-gemma")
@register("llm-values")
class LLMValues(Study[ValuesRecipe, ValuesFound]):
    """Principal components of values at the last token of prompts, beside fresh weights."""

    def measure(self, tier: Tier, seed: int) -> ValuesFound:
        recipe = self.recipes[tier]
        model = subject(recipe.model)
        prompts = sample(
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
        last = len(own.values) - 1

        def measured(kind: str) -> Mapping[str, Measured]:
            states = measure_states(
                getattr(own, kind)[last],
                bits,
                layer=last,
                kind=kind,
                sources=prompts.sources,
                control=(getattr(fresh, kind)[last], fresh_bits),
                draws=recipe.draws,
            )
            return states.measured

        return ValuesFound(
            lowest_bits=float(bits.min()),
            highest_bits=float(bits.max()),
            fresh_spread=float(fresh_bits.std()),
            endings=len({tokens[-1] for tokens in prompts.tokens}),
            **{kind: measured(kind) for kind in KINDS},
        )

    def values(self, tier: Tier, one: ValuesFound) -> Mapping[str, Value]:
        order, decoded = one.values[SPEARMAN], one.values[DECODABILITY]
        fresh = decoded.nulls[CONTROL]
        return {
            "order": Value(order.value, order.nulls[CONTROL]),
            "decodable": Value(decoded.value - fresh, fresh),
        }

    def draw(self, tier: Tier, found: Mapping[int, ValuesFound]) -> list[Picture]:
        figure, (orders, decoded) = panels(2, (8, 2.6), sharey=True)
        for axes, name, label in (
            (orders, SPEARMAN, "|Spearman| of PC 1 with entropy"),
            (decoded, DECODABILITY, "held-out R² of entropy"),
        ):
            rows = {kind: [getattr(one, kind)[name] for one in found.values()] for kind in KINDS}
            draw_measured(axes, rows, CONTROL)
            axes.set(xlabel=label, xlim=(-0.2, 1))
        caption = (
            "States of the last layer at the last token: circles as trained, squares with fresh "
            "weights; a point is a draw of prompts."
        )
        return [Picture("states", figure, caption, "Points by kind of state, two panels.")]
