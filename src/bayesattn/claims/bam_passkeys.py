"""bam-retrieval and bam-init: how far beyond its training length does a model find a passkey?

    accuracy(length) = share of prompts of that length whose five digits are all right

Prompts are the authors', with the needle at all depths. One small model is trained alike under
every variant.

bam-retrieval compares encodings. What the prior and what SSMax contribute is read off the four
corners: neither (NoPE), one of them, both.

bam-init compares initialisations of a learned prior. Beside them it measures what else a learned
prior may do without: moving, negative shapes, one of its own in every layer.
"""

from collections.abc import Mapping, Sequence

from bayesattn.claims.exhibits import heatmap_exhibit
from bayesattn.claims.language_models import (
    FROZEN,
    PUBLISHED,
    SOONER,
    UNIFORM,
    VARIANTS,
    LanguageRecipe,
)
from bayesattn.claims.panels import draw_lengths, mean_curve, panels
from bayesattn.claims.registry import register
from bayesattn.evals.lengths import token_lengths
from bayesattn.evals.passkey import passkey
from bayesattn.ledger.study import Exhibit, PartedStudy, Picture, Tier
from bayesattn.ledger.typed import Stored

FAILURES = 2
"""After so many lengths in a row without a correct answer, longer ones count as 0."""
ENCODINGS = tuple(name for name in VARIANTS if not name.startswith("GGD"))
INITIALISATIONS = (UNIFORM, "GGD alibi, slow + SSMax", "GGD sampled, slow + SSMax", SOONER)
"""All heads uniform, all local, drawn at random, half local and half uniform."""
ABLATIONS = (
    PUBLISHED,
    "GGD mixed + SSMax",
    FROZEN,
    "GGD mixed, slow + SSMax on content",
    "GGD mixed positive, slow + SSMax",
    "GGD mixed shared, slow + SSMax",
)
"""At the learning rate of the rest, not at all, and what else may be left out; nothing is judged
by them."""


class PasskeyRecipe(LanguageRecipe):
    """Models, and the prompts that they read."""

    lengths: tuple[str, ...]
    """Of prompts, in training lengths."""
    depths: int = 10
    samples: int = 2
    """Prompts per length and depth."""
    few: int = 5_000
    """From so many tokens on one prompt per depth; for all but what is judged half the depths, and
    from four times as many on three, since 65,536 tokens take a core a minute and a half."""
    tolerance: float | None = None
    """Share of the posterior that attention may leave out where there is a prior to prove it by."""

    @property
    def factors(self) -> list[float]:
        return [float(length.removesuffix("x")) for length in self.lengths]

    def prompts(self, variant: str, tokens: int) -> tuple[int, int]:
        """Depths and prompts per depth at this length."""
        if tokens < self.few:
            return self.depths, self.samples
        if variant == self.judged:
            return self.depths, 1
        return (self.depths // 2 if tokens < 4 * self.few else 3), 1

    def accuracy(self, variant: str, seed: int) -> list[float]:
        found: list[float] = []
        # without a prior nothing can be left out, and looking for it costs time
        tolerance = None if self.language(variant).prior == "uniform" else self.tolerance
        for name, tokens in token_lengths(",".join(self.lengths), self.length).items():
            if found[-FAILURES:] == [0.0] * FAILURES:
                found.append(0.0)
                continue
            model = self.model(variant, seed, tokens)
            depths, samples = self.prompts(variant, tokens)
            answers = passkey(
                model, name, depths=depths, samples=samples, seed=seed, tolerance=tolerance
            )
            found.append(answers.by_length()[0].accuracy)
        return found


class Accuracy(Stored):
    """One variant."""

    by_length: list[float]
    """From the training length to the farthest one."""


Found = Mapping[int, Mapping[str, Accuracy]]
"""By seed and variant."""


class PasskeyStudy(PartedStudy[PasskeyRecipe, Accuracy]):
    """Accuracies by length, one variant at a time: their longest prompts take an hour or two."""

    def measure_part(self, tier: Tier, seed: int, part: str) -> Accuracy:
        return Accuracy(by_length=self.recipes[tier].accuracy(part, seed))


@register("bam-retrieval")
class BamRetrieval(PasskeyStudy):
    """Trains one model under many encodings and asks for passkeys at growing lengths."""

    def draw(self, tier: Tier, found: Found) -> list[Picture]:
        recipe = self.recipes[tier]
        groups = {
            "encodings": [v for v in recipe.variants if v in ENCODINGS or v == recipe.judged],
            "learned priors": [v for v in recipe.variants if v not in ENCODINGS],
        }
        return [_draw(recipe, found, groups)]

    def exhibits(self, tier: Tier, found: Found) -> list[Exhibit]:
        recipe = self.recipes[tier]
        return [
            heatmap_exhibit(
                list(_means(found, recipe.variants).values()),
                recipe.variants,
                recipe.lengths,
                labels=("encoding", "prompt in training lengths"),
                unit="of passkeys found",
                title="Passkeys found, by encoding and length",
                caption="Means over seeds. The training mixture contains passkey prompts of up to "
                "the training length; the authors' did not.",
                limits=(0.0, 1.0),
            )
        ]


@register("bam-init")
class BamInit(PasskeyStudy):
    """Trains one model from several initialisations and asks for passkeys at growing lengths."""

    def draw(self, tier: Tier, found: Found) -> list[Picture]:
        recipe = self.recipes[tier]
        groups = {
            "initialisations": [v for v in recipe.variants if v in INITIALISATIONS],
            "other ways": [v for v in recipe.variants if v in (*ABLATIONS, SOONER)],
        }
        return [_draw(recipe, found, groups)]


def _means(found: Found, variants: Sequence[str]) -> dict[str, list[float]]:
    """Accuracy by length, means over seeds."""
    return {name: mean_curve(found, lambda one, v=name: one[v].by_length) for name in variants}


def _draw(recipe: PasskeyRecipe, found: Found, groups: Mapping[str, Sequence[str]]) -> Picture:
    """Accuracy over length, a panel for each group of variants."""
    figure, axes = panels(len(groups), (9, 3.8), sharey=True)
    for panel, (title, names) in zip(axes, groups.items(), strict=True):
        draw_lengths(panel, recipe.factors, _means(found, names))
        panel.set(title=title, xlabel="prompt, in training lengths", ylim=(-0.03, 1.03))
    axes[0].set_ylabel("passkeys retrieved")
    caption = "Share of passkeys retrieved by length of the prompt; means over seeds."
    alt = "One line per variant, from 1 at the training length falling at longer ones."
    return Picture("passkeys", figure, caption, alt)
