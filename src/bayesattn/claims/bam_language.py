"""The claims that train language models: how far they find a passkey, and at what perplexity.

A claim is a table: which variants are trained and what they are asked (its file), and which of
these numbers a statement is about (here).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bayesattn.claims.exhibits import heatmap_exhibit
from bayesattn.claims.language_models import (
    BEST,
    FAR_LOCAL,
    OTHERS_LOCAL,
    PUBLISHED,
    VARIANTS,
    learned_priors,
    shapes,
)
from bayesattn.claims.panels import panels
from bayesattn.claims.passkeys import Answers, PasskeyRecipe, Question, share, total
from bayesattn.claims.registry import register
from bayesattn.figures.league import draw_depths, draw_league, draw_shapes
from bayesattn.ledger.study import Exhibit, PartedStudy, Picture, Tier
from bayesattn.ledger.trained import LanguageTraining
from bayesattn.verdicts import Count, Value

HALF = 0.5
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


def _finds(*names: str) -> dict[str, Finds]:
    """A statement about the best variant for each question, named after it."""
    return {f"finds-{name.replace(' ', '-')}": Finds(BEST, name) for name in names}


RIVALS = ("NoPE + SSMax", "ALiBi", "ALiBi + SSMax", "RoPE", "RoPE, NoPE last")
STATED: dict[str, Mapping[str, Finds | Reads | Smallest]] = {
    "million-tokens": {
        **_finds("64x", "512x", "2048x", "8192x", "512x in words", "512x in text"),
        **_finds("2048x in words", "2048x in text", "64x among 3"),
    },
    "bam-retrieval": {
        "published": Finds(PUBLISHED, "64x"),
        "published-far": Finds(PUBLISHED, "512x"),
        "lead-alibi": Finds(PUBLISHED, "64x", "ALiBi"),
        "lead-rope": Finds(PUBLISHED, "64x", "RoPE"),
        "ours-lead-alibi": Finds(BEST, "512x", "ALiBi"),
        "ours-lead-rope": Finds(BEST, "512x", "RoPE"),
        "ours-lead-strongest": Finds(BEST, "512x", RIVALS),
    },
    "bam-init": {
        f"lead-{name}": Finds(PUBLISHED, "64x", f"GGD {name} + SSMax")
        for name in ("alibi", "sampled", "mixed")
    },
    "bam-perplexity": {"alibi": Reads(PUBLISHED, "ALiBi"), "rope": Reads(PUBLISHED, "RoPE")},
    # heads with β < 0 are made local, or others
    "bam-far-heads": {
        "emerge": Smallest(PUBLISHED),
        "needed": Finds(OTHERS_LOCAL, "16x", FAR_LOCAL, of=PUBLISHED),
    },
    # one model, read with the horizon and without
    "ssmax-horizon": {
        "farther-128x": Finds(BEST, "128x", f"{BEST}, no horizon"),
        "farther-512x": Finds(BEST, "512x", f"{BEST}, no horizon"),
        "inside": Reads(BEST, f"{BEST}, no horizon"),
    },
    # priors that never move, beside slow ones
    "frozen-priors": {
        "as-far": Finds(f"{BEST}, frozen", "512x", BEST),
        "as-well": Reads(f"{BEST}, frozen", BEST),
    },
    # every encoding on equal terms
    "league": {
        "first": Finds(
            BEST, "512x", tuple(name for name in VARIANTS if not name.startswith("GGD"))
        ),
        "million": Finds(BEST, "8192x"),
    },
}
"""What each claim states."""


class LanguageStudy(PartedStudy[PasskeyRecipe, Answers]):
    """A table of statements over variants, which are measured one by one."""

    def parts(self, tier: Tier) -> Sequence[str]:
        return self.recipes[tier].variants

    def needed(self, tier: Tier, seed: int, part: str | None) -> Iterable[LanguageTraining]:
        assert part is not None  # it has parts
        return self.recipes[tier].needed(part, seed).values()

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
        return {name: own.value(one) for name, own in STATED[self.claim.id].items()}

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
        found_by = {
            v: [share([c for one in found.values() for c in one[v].found[q.name]]) for q in asked]
            for v in recipe.variants
        }
        # those that find half of longer prompts first
        half = {v: sum(own >= HALF for own in shares) for v, shares in found_by.items()}
        order = sorted(found_by, key=lambda v: (half[v], sum(found_by[v])), reverse=True)
        ends = [
            f"{v} up to {asked[half[v] - 1].length}" if half[v] else f"{v} nowhere" for v in order
        ]
        return [
            heatmap_exhibit(
                [found_by[v] for v in order],
                order,
                [own.length for own in asked],
                labels=("encoding", "prompt in training lengths"),
                unit="of passkeys found",
                title=f"Half of the passkeys are found by {', by '.join(ends[:2])}",
                caption="Means over seeds; a guess finds one in 100,000. The training mixture "
                "contains passkey prompts of up to the training length; the authors' did not.",
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
    known = [one.perplexity for own in found.values() for one in own.values()]
    mean = float(np.mean([one for one in known if one is not None]))
    return Picture("perplexity", figure, caption, f"{caption} Their mean is {mean:.3g}.")


for _name in STATED:
    register(_name)(LanguageStudy)
