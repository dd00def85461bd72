"""How far beyond its training length a variant of the language model finds passkeys.

    accuracy(length) = share of prompts of that length whose five digits are all right

Prompts are the authors', with the needle at all depths.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from bayesattn.evals.lengths import token_lengths
from bayesattn.evals.passkey import passkey
from bayesattn.ledger.language_models import LanguageRecipe, LanguageTraining
from bayesattn.ledger.study import PartedStudy, Picture, Tier

FAILURES = 2
"""After so many lengths in a row without a correct answer, longer ones count as 0."""


@dataclass(frozen=True, kw_only=True)
class ReachRecipe(LanguageRecipe):
    """And how far to look."""

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

    def prompts(self, variant: str, tokens: int) -> tuple[int, int]:
        """Depths and prompts per depth at this length."""
        if tokens < self.few:
            return self.depths, self.samples
        if variant == self.judged:
            return self.depths, 1
        return (self.depths // 2 if tokens < 4 * self.few else 3), 1


R = TypeVar("R", bound=ReachRecipe)
P = TypeVar("P")


class VariantStudy(PartedStudy[R, P]):
    """A claim about variants, measured one by one: their longest prompts take an hour or two."""

    def trainings(self, tier: Tier, seed: int) -> Mapping[str, LanguageTraining]:
        """One model per variant."""
        return self.recipes[tier].trainings(seed)

    def parts(self, tier: Tier) -> Sequence[str]:
        """Every variant."""
        return self.recipes[tier].variants


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """Of one variant."""

    by_length: list[float]

    @property
    def inside(self) -> float:
        """At the first length, that of the training."""
        return self.by_length[0]

    @property
    def farthest(self) -> float:
        """At the last length."""
        return self.by_length[-1]


Accuracies = Mapping[int, Mapping[str, Accuracy]]
"""By seed and variant."""


class ReachStudy(VariantStudy[ReachRecipe, Accuracy]):
    """A claim about accuracies by length."""

    def measure_part(self, tier: Tier, seed: int, part: str) -> Accuracy:
        """Of one variant."""
        return Accuracy(by_length=accuracy_by_length(self.recipes[tier], part, seed))


def inside(found: Accuracies, variant: str) -> list[float]:
    """Accuracy of a variant at the training length, by seed."""
    return [one[variant].inside for one in found.values()]


def farthest(found: Accuracies, variant: str) -> list[float]:
    """Accuracy of a variant at the last length, by seed."""
    return [one[variant].farthest for one in found.values()]


def mean_by_length(found: Accuracies, variant: str) -> list[float]:
    """Mean over seeds."""
    return np.mean([one[variant].by_length for one in found.values()], 0).tolist()


def accuracy_by_length(recipe: ReachRecipe, variant: str, seed: int) -> list[float]:
    """One accuracy per length of the recipe."""
    accuracies: list[float] = []
    # without a prior nothing can be left out, and looking for it costs time
    tolerance = None if recipe.language(variant).prior == "uniform" else recipe.tolerance
    for name, tokens in token_lengths(",".join(recipe.lengths), recipe.length).items():
        if accuracies[-FAILURES:] == [0.0] * FAILURES:
            accuracies.append(0.0)
            continue
        depths, samples = recipe.prompts(variant, tokens)
        found = passkey(
            recipe.model(variant, seed, tokens),
            name,
            depths=depths,
            samples=samples,
            seed=seed,
            tolerance=tolerance,
        )
        accuracies.append(found.by_length()[0].accuracy)
    return accuracies


def tell_reach(recipe: ReachRecipe, found: Accuracies) -> str:
    """Mean accuracies of all variants, in a sentence."""
    means = ", ".join(
        f"{name} {np.mean(inside(found, name)):.2f} and {np.mean(farthest(found, name)):.2f}"
        for name in recipe.variants
    )
    return f"Mean accuracy at the training length and at {recipe.lengths[-1]}: {means}."


def draw_reach(
    recipe: ReachRecipe, found: Accuracies, groups: Mapping[str, Sequence[str]]
) -> Picture:
    """Accuracy over length, a panel for each group of variants."""
    from matplotlib.figure import Figure

    factors = [float(length.removesuffix("x")) for length in recipe.lengths]
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    panels = figure.subplots(1, len(groups), sharey=True, squeeze=False)[0]
    for axes, (title, names) in zip(panels, groups.items(), strict=True):
        for name in names:
            style = "-" if "SSMax" in name else "--"
            axes.plot(factors, mean_by_length(found, name), style, label=name)
        axes.set_xscale("log", base=2)
        axes.set(title=title, xlabel="prompt, in training lengths", ylim=(-0.03, 1.03))
        axes.legend(fontsize=7)
    panels[0].set_ylabel("passkeys retrieved")
    caption = "Share of passkeys retrieved by length of the prompt; means over seeds."
    alt = "One line per variant, from 1 at the training length falling at longer ones."
    return Picture("reach", figure, caption, alt)
