"""The claims that train language models: how far they find a passkey, and at what perplexity.

    found(variant, question)    prompts whose five digits are all right, of so many
    bits(variant)               of perplexity on held-out text at the training length

A claim is a table: which variants are trained (its file), what they are asked (its file), and which
of these numbers a statement is about (here). Needles stand at depths 0, 1/n, 2/n … of n prompts, so
never next to the question. Only variants that find .95 of them at the training length count.

The training mixture has passkey prompts, up to the training length; the authors' had none.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bayesattn.claims.exhibits import heatmap_exhibit
from bayesattn.claims.language_models import (
    BEST,
    FAR_LOCAL,
    OTHERS_LOCAL,
    PUBLISHED,
    VARIANTS,
    LanguageRecipe,
    learned_priors,
    shapes,
)
from bayesattn.claims.panels import panels
from bayesattn.claims.registry import register
from bayesattn.corpora import NeedleMaker
from bayesattn.corpora.haystacks import Filler
from bayesattn.evals.lengths import one_length
from bayesattn.evals.passkey import passkey
from bayesattn.evals.perplexity import held_out, perplexity
from bayesattn.figures.league import draw_depths, draw_league, draw_shapes
from bayesattn.ledger.study import Exhibit, PartedStudy, Picture, Tier
from bayesattn.ledger.typed import Stored
from bayesattn.models.open import LanguageModel
from bayesattn.verdicts import Count, Value

LEARNT = 0.95
"""Share of passkeys at the training length without which nothing is asked farther away."""
INSIDE = "1x"
FAILURES = 2
"""After so many lengths in a row without a correct answer longer ones count as not found."""


class Question(Stored):
    """Prompts of one length."""

    length: str
    """In training lengths, such as 64x."""
    depths: int = 10
    """Prompts, each with its needle at a depth of its own."""
    haystack: Filler = "repeated"
    distractors: int = 0

    @property
    def name(self) -> str:
        others = f" among {self.distractors}" if self.distractors else ""
        where = "" if self.haystack == "repeated" else f" in {self.haystack}"
        return f"{self.length}{where}{others}"

    @property
    def factor(self) -> float:
        return float(self.length.removesuffix("x"))


class PasskeyRecipe(LanguageRecipe):
    """Models, and what they are asked."""

    questions: tuple[Question, ...] = ()
    """The first one is at the training length."""
    text: int = 0
    """Held-out sequences of the training length that are read for perplexity, at most."""
    tolerance: float | None = None
    """Share of the posterior that attention may leave out where there is a prior to prove it by."""

    def answers(self, variant: str, seed: int) -> dict[str, list[Count]]:
        """By question, one count for each depth."""
        found: dict[str, list[Count]] = {}
        makers: dict[Any, NeedleMaker] = {}
        missed: dict[Any, int] = {}
        # without a prior nothing can be left out, and looking for it costs time
        config = self.language(variant)
        tolerance = None if config.prior == "uniform" or config.forget else self.tolerance
        for own in sorted(self.questions, key=lambda own: own.factor):
            kind = (own.haystack, own.distractors)
            ablated = VARIANTS[variant].made_local is not None
            learnt = ablated or own.length == INSIDE or share(found[INSIDE]) >= LEARNT
            if not learnt or missed.get(kind, 0) == FAILURES:
                found[own.name] = [Count(0, 1)] * own.depths
                continue
            model = self.model(variant, seed, one_length(own.length, self.length))
            if kind not in makers:
                makers[kind] = NeedleMaker(
                    model.tokenizer, haystack=own.haystack, distractors=own.distractors
                )
            found[own.name] = ask(model, own, makers[kind], seed, tolerance)
            missed[kind] = 0 if share(found[own.name]) else missed.get(kind, 0) + 1
        return found

    def perplexity(self, variant: str, seed: int) -> float | None:
        """Of pieces of held-out text as long as a training sequence; None if it is not asked."""
        if not self.text:
            return None
        model = self.model(variant, seed, self.length)
        pieces = held_out(self.corpus, model.tokenizer, self.length, self.text)
        return perplexity(model, pieces).by_length()[-1]["perplexity"]


def ask(
    model: LanguageModel, own: Question, maker: NeedleMaker, seed: int, tolerance: float | None
) -> list[Count]:
    depths = [at / own.depths for at in range(own.depths)]
    found = passkey(
        model, own.length, depths=depths, samples=1, seed=seed, tolerance=tolerance, maker=maker
    )
    return [Count(cell.correct, cell.total) for cell in found.cells]


def total(counts: Sequence[Count]) -> Count:
    return Count(sum(own.successes for own in counts), sum(own.trials for own in counts))


def share(counts: Sequence[Count]) -> float:
    return total(counts).successes / total(counts).trials


class Answers(Stored):
    """What one model said."""

    lr: float
    """Learning rate it was trained at."""
    found: Mapping[str, list[Count]]
    """By question, for each depth."""
    perplexity: float | None = None
    shapes: list[float] | None = None
    """β of every head, of a learned prior."""

    @property
    def learnt(self) -> bool:
        return INSIDE not in self.found or share(self.found[INSIDE]) >= LEARNT


Found = Mapping[int, Mapping[str, Answers]]
"""By seed and variant."""


@dataclass(frozen=True)
class Finds:
    """Share of passkeys found; less that of another variant, if one is named."""

    variant: str
    question: str
    against: str | tuple[str, ...] = ()
    """Of several that are trained and have learnt the task the one that finds most."""
    of: str = ""
    """What must have learnt the task, if these are ablations of it."""

    def value(self, one: Mapping[str, Answers]) -> Value:
        names = (self.against,) if isinstance(self.against, str) else self.against
        own, rivals = one[self.variant], [one[name] for name in names if name in one]
        counts = total(own.found[self.question])
        if not names:
            return Value(counts, learnt=own.learnt)
        if self.of:
            own = one[self.of]
        else:
            rivals = [rival for rival in rivals if rival.learnt]
        best = max(
            (total(rival.found[self.question]) for rival in rivals),
            key=lambda count: count.successes / count.trials,
            default=Count(0, 1),
        )
        shown = best.successes / best.trials
        return Value((counts, best), shown, learnt=own.learnt and bool(rivals))


@dataclass(frozen=True)
class Reads:
    """Ratio of perplexities."""

    variant: str
    against: str

    def value(self, one: Mapping[str, Answers]) -> Value:
        own, other = one[self.variant].perplexity, one[self.against].perplexity
        assert own is not None and other is not None  # a claim with this statement asks for both
        return Value(own / other, other)


@dataclass(frozen=True)
class Smallest:
    """The smallest β of all heads."""

    variant: str

    def value(self, one: Mapping[str, Answers]) -> Value:
        own = one[self.variant]
        assert own.shapes is not None  # of a learned prior
        return Value(min(own.shapes), 0.0, learnt=own.learnt)


class LanguageStudy(PartedStudy[PasskeyRecipe, Answers]):
    """A table of statements over variants, which are measured one by one."""

    stated: ClassVar[Mapping[str, Finds | Reads | Smallest]]

    def parts(self, tier: Tier) -> Sequence[str]:
        return self.recipes[tier].variants

    def measure_part(self, tier: Tier, seed: int, part: str) -> Answers:
        recipe = self.recipes[tier]
        model = recipe.model(part, seed, recipe.length)
        return Answers(
            lr=recipe.rate_of(part),
            found=recipe.answers(part, seed),
            perplexity=recipe.perplexity(part, seed),
            shapes=shapes(model) if learned_priors(model) else None,
        )

    def values(self, tier: Tier, one: Mapping[str, Answers]) -> Mapping[str, Value]:
        return {name: own.value(one) for name, own in self.stated.items()}

    def draw(self, tier: Tier, found: Found) -> list[Picture]:
        recipe = self.recipes[tier]
        if not recipe.questions:
            return [_draw_perplexities(recipe, found)]
        drawn = [draw_league(*self.curves(tier, found), recipe.length)]
        depths = {
            variant: self.depths(tier, found, variant)
            for variant in (BEST, PUBLISHED, "RoPE")
            if variant in recipe.variants
        }
        learned = {
            name: [own for one in found.values() for own in one[name].shapes or ()]
            for name in recipe.variants
            if VARIANTS[name].trained["prior"] == "ggd"
        }
        if len(depths) > 1:
            drawn.append(draw_depths([q.length for q in self.plain(tier)], depths))
        return [*drawn, *([draw_shapes(learned)] if learned else [])]

    def plain(self, tier: Tier) -> list[Question]:
        """Questions in the repeated haystack, or all if there is only one length of it."""
        asked = sorted(self.recipes[tier].questions, key=lambda own: own.factor)
        return [own for own in asked if own.haystack == "repeated" and not own.distractors]

    def curves(self, tier: Tier, found: Found) -> tuple[list[float], dict[str, list[Any]]]:
        """Lengths, and by variant and haystack the counts of all seeds at each of them."""
        recipe, curves = self.recipes[tier], dict[str, list[Any]]()
        kinds = dict.fromkeys((own.haystack, own.distractors) for own in recipe.questions)
        factors = sorted({own.factor for own in recipe.questions})
        for variant in recipe.variants:
            for kind in kinds:
                asked = {
                    own.factor: own
                    for own in recipe.questions
                    if (own.haystack, own.distractors) == kind
                }
                label = asked[min(asked)].name.partition(" ")[2]
                name = f"{variant} {label}".strip() if len(recipe.variants) > 1 else label
                curves[name or "repeated"] = [
                    total([c for one in found.values() for c in one[variant].found[own.name]])
                    if (own := asked.get(factor))
                    else None
                    for factor in factors
                ]
        return factors, curves

    def depths(self, tier: Tier, found: Found, variant: str) -> list[list[float]]:
        """Share found for each length and depth, means over seeds."""
        return [
            [
                share([one[variant].found[own.name][at] for one in found.values()])
                for at in range(own.depths)
            ]
            for own in self.plain(tier)
        ]

    def exhibits(self, tier: Tier, found: Found) -> list[Exhibit]:
        recipe, asked = self.recipes[tier], self.plain(tier)
        if not asked:
            return []
        return [
            heatmap_exhibit(
                [
                    [
                        share([c for one in found.values() for c in one[v].found[q.name]])
                        for q in asked
                    ]
                    for v in recipe.variants
                ],
                recipe.variants,
                [own.length for own in asked],
                labels=("encoding", "prompt in training lengths"),
                unit="of passkeys found",
                title="Passkeys found, by encoding and length",
                caption="Means over seeds. The training mixture contains passkey prompts of up to "
                "the training length; the authors' did not.",
                limits=(0.0, 1.0),
            )
        ]


def _draw_perplexities(recipe: PasskeyRecipe, found: Found) -> Picture:
    figure, (axes,) = panels(size=(7, 3.4))
    for row, variant in enumerate(recipe.variants):
        values = [one[variant].perplexity for one in found.values()]
        axes.plot(values, [row] * len(values), "o", alpha=0.7)
    axes.set_yticks(range(len(recipe.variants)), recipe.variants)
    axes.set(xlabel="perplexity of held-out text at the training length")
    caption = "Perplexity of held-out text; a point for each seed."
    mean = float(np.mean([one.perplexity for own in found.values() for one in own.values()]))
    return Picture("perplexity", figure, caption, f"{caption} Their mean is {mean:.3g}.")


def _finds(*names: str, variant: str = BEST) -> dict[str, Finds]:
    """A statement for each question, named after it."""
    return {f"finds-{name.replace(' ', '-')}": Finds(variant, name) for name in names}


@register("million-tokens")
class MillionTokens(LanguageStudy):
    """The recipe `tiny` in three haystacks and among distractors."""

    stated: ClassVar = _finds(
        "64x",
        "512x",
        "2048x",
        "8192x",
        "512x in words",
        "512x in text",
        "2048x in words",
        "2048x in text",
        "64x among 3",
    )


RIVALS = ("NoPE + SSMax", "ALiBi", "ALiBi + SSMax", "RoPE", "RoPE, NoPE last")


@register("bam-retrieval")
class BamRetrieval(LanguageStudy):
    """The published setting, and the recipe `tiny` beside rivals."""

    stated: ClassVar = {
        "published": Finds(PUBLISHED, "64x"),
        "published-far": Finds(PUBLISHED, "512x"),
        "lead-alibi": Finds(PUBLISHED, "64x", "ALiBi"),
        "lead-rope": Finds(PUBLISHED, "64x", "RoPE"),
        "ours-lead-alibi": Finds(BEST, "512x", "ALiBi"),
        "ours-lead-rope": Finds(BEST, "512x", "RoPE"),
        "ours-lead-strongest": Finds(BEST, "512x", RIVALS),
    }


@register("bam-init")
class BamInit(LanguageStudy):
    """The published setting from four initialisations."""

    stated: ClassVar = {
        f"lead-{name}": Finds(PUBLISHED, "64x", f"GGD {name} + SSMax")
        for name in ("alibi", "sampled", "mixed")
    }


@register("bam-perplexity")
class BamPerplexity(LanguageStudy):
    """Text alone."""

    stated: ClassVar = {"alibi": Reads(PUBLISHED, "ALiBi"), "rope": Reads(PUBLISHED, "RoPE")}


@register("bam-far-heads")
class BamFarHeads(LanguageStudy):
    """The published setting; then heads with β < 0 are made local, or others."""

    stated: ClassVar = {
        "emerge": Smallest(PUBLISHED),
        "needed": Finds(OTHERS_LOCAL, "16x", FAR_LOCAL, of=PUBLISHED),
    }


@register("ssmax-horizon")
class SsmaxHorizon(LanguageStudy):
    """One model, read with the horizon and without."""

    stated: ClassVar = {
        "farther-128x": Finds(BEST, "128x", f"{BEST}, no horizon"),
        "farther-512x": Finds(BEST, "512x", f"{BEST}, no horizon"),
        "inside": Reads(BEST, f"{BEST}, no horizon"),
    }


@register("frozen-priors")
class FrozenPriors(LanguageStudy):
    """Priors that never move, beside slow ones."""

    stated: ClassVar = {
        "as-far": Finds(f"{BEST}, frozen", "512x", BEST),
        "as-well": Reads(f"{BEST}, frozen", BEST),
    }


@register("league")
class League(LanguageStudy):
    """Every encoding on equal terms."""

    stated: ClassVar = {
        "first": Finds(
            BEST, "512x", tuple(name for name in VARIANTS if not name.startswith("GGD"))
        ),
        "million": Finds(BEST, "8192x"),
    }
