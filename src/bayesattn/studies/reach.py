"""How far beyond its training length a variant of the language model finds passkeys.

    accuracy(length) = share of prompts of that length whose five digits are all right

Prompts are the authors', with the needle at all depths.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bayesattn.evals.passkey import passkey
from bayesattn.evals.token_lengths import token_lengths
from bayesattn.studies.language_models import LanguageRecipe
from bayesattn.studies.study import Numbers, Picture
from bayesattn.studies.summaries import average, curve

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


def measure_reach(recipe: ReachRecipe, variant: str, seed: int) -> Numbers:
    """Accuracy by length, and at the first and the last of them."""
    accuracies = accuracy_by_length(recipe, variant, seed)
    return {
        f"{variant}: accuracy": accuracies,
        f"{variant}: inside": accuracies[0],
        f"{variant}: farthest": accuracies[-1],
    }


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


def tell_reach(recipe: ReachRecipe, numbers: Mapping[int, Numbers]) -> str:
    """Mean accuracies of all variants, in a sentence."""
    means = ", ".join(
        f"{name} {average(numbers, f'{name}: inside'):.2f} and "
        f"{average(numbers, f'{name}: farthest'):.2f}"
        for name in recipe.variants
    )
    return f"Mean accuracy at the training length and at {recipe.lengths[-1]}: {means}."


def draw_reach(
    recipe: ReachRecipe, numbers: Mapping[int, Numbers], groups: Mapping[str, Sequence[str]]
) -> Picture:
    """Accuracy over length, a panel for each group of variants."""
    from matplotlib.figure import Figure

    factors = [float(length.removesuffix("x")) for length in recipe.lengths]
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    panels = figure.subplots(1, len(groups), sharey=True, squeeze=False)[0]
    for axes, (title, names) in zip(panels, groups.items(), strict=True):
        for name in names:
            style = "-" if "SSMax" in name else "--"
            axes.plot(factors, curve(numbers, f"{name}: accuracy"), style, label=name)
        axes.set_xscale("log", base=2)
        axes.set(title=title, xlabel="prompt, in training lengths", ylim=(-0.03, 1.03))
        axes.legend(fontsize=7)
    panels[0].set_ylabel("passkeys retrieved")
    caption = "Share of passkeys retrieved by length of the prompt; means over seeds."
    alt = "One line per variant, from 1 at the training length falling at longer ones."
    return Picture("reach", figure, caption, alt)
