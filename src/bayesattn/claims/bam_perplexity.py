"""bam-perplexity: is length extrapolation paid for with perplexity?

    ratio = perplexity(GGD + SSMax) / perplexity(RoPE)

on held-out text, at the training length; by position up to many times that length beside it.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from bayesattn.claims.bam_passkeys import PasskeyRecipe
from bayesattn.claims.panels import draw_lengths, mean_curve, panels
from bayesattn.claims.registry import register
from bayesattn.evals.perplexity import held_out, perplexity
from bayesattn.ledger.study import PartedStudy, Picture, Tier
from bayesattn.ledger.typed import Stored

REFERENCE = "RoPE"
"""What everyone trains with."""
CORPUS = "pydoc"


class PerplexityRecipe(PasskeyRecipe):
    """The models of bam-retrieval, on text."""

    stretch: int
    """Longest text, in training lengths."""
    sequences: int = 8


class Perplexities(Stored):
    """Of one variant."""

    inside: float
    """At the training length."""
    by_window: list[float]
    frequency: float
    """Of predicting every token by its frequency."""


Found = Mapping[int, Mapping[str, Perplexities]]


@register("bam-perplexity")
class BamPerplexity(PartedStudy[PerplexityRecipe, Perplexities]):
    """Reads held-out text with the models of bam-retrieval."""

    def measure_part(self, tier: Tier, seed: int, part: str) -> Perplexities:
        recipe = self.recipes[tier]
        tokens = recipe.length * recipe.stretch
        model = recipe.model(part, seed, tokens)
        text = held_out(CORPUS, model.tokenizer, tokens, recipe.sequences)
        windows = [row["perplexity"] for row in perplexity(model, text).by_window()]
        # Every text is read again in pieces of the training length: many more tokens to judge by
        # than the first window of each.
        model = recipe.model(part, seed, recipe.length)
        pieces = held_out(CORPUS, model.tokenizer, recipe.length, 10_000)
        inside = perplexity(model, pieces)
        return Perplexities(
            inside=inside.by_length()[-1]["perplexity"],
            by_window=windows,
            frequency=_by_frequency(pieces[:, 1:].flatten().numpy()),
        )

    def draw(self, tier: Tier, found: Found) -> list[Picture]:
        recipe = self.recipes[tier]
        figure, (axes,) = panels(size=(7, 3.8))
        frequency = float(np.mean([one[REFERENCE].frequency for one in found.values()]))
        axes.axhline(frequency, color="grey", ls=":", label="by frequency")
        curves = {
            name: mean_curve(found, lambda one, v=name: one[v].by_window)
            for name in recipe.variants
        }
        draw_lengths(axes, range(1, 1 + len(curves[REFERENCE])), curves)
        axes.set(xlabel="position, in training lengths", ylabel="perplexity", yscale="log")
        caption = "Perplexity of held-out text by position; means over seeds."
        alt = "One line per encoding over the position, some rising beyond the training length."
        return [Picture("positions", figure, caption, alt)]


def _by_frequency(tokens: NDArray[np.int64]) -> float:
    """Perplexity of the frequencies of these very tokens: the best that no context allows."""
    share = np.bincount(tokens) / len(tokens)
    share = share[share > 0]
    return float(np.exp(-(share * np.log(share)).sum()))
