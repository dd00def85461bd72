"""bam-perplexity: is the reach paid for with perplexity?

    ratio = perplexity(GGD + SSMax) / perplexity(RoPE)

on held-out text, at the training length; by position up to many times that length beside it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from bayesattn.evals.long_text import held_out
from bayesattn.evals.perplexity import perplexity
from bayesattn.stats import judge_below
from bayesattn.studies.bam_retrieval import BamRetrieval
from bayesattn.studies.language_models import LanguageTraining
from bayesattn.studies.reach import ReachRecipe
from bayesattn.studies.registry import register
from bayesattn.studies.study import Claim, Numbers, Picture, Study, Tier, Verdict
from bayesattn.studies.summaries import average, by_seed, curve

REFERENCE = "RoPE"
"""What everyone trains with."""
COMPARABLE = 1.05
"""Perplexities within 5% count as comparable."""
CORPUS = "pydoc"


@dataclass(frozen=True, kw_only=True)
class PerplexityRecipe(ReachRecipe):
    """The models of bam-retrieval, on text."""

    stretch: int
    """Longest text, in training lengths."""
    sequences: int = 8


def _recipe(tier: Tier, stretch: int) -> PerplexityRecipe:
    return PerplexityRecipe(**vars(BamRetrieval.recipes[tier]), stretch=stretch)


@register
class BamPerplexity(Study[PerplexityRecipe]):
    """Reads held-out text with the models of bam-retrieval."""

    claim = Claim(
        id="bam-perplexity",
        statement="A learned generalised Gaussian prior with SSMax has a perplexity comparable to "
        "that of other encodings.",
        source="Bianchessi et al., Bayesian Attention Mechanism, arXiv 2505.22842: abstract, "
        "appendix D.1",
        reported="comparable to ALiBi; on Wikipedia RoPE slightly better",
    )
    method = (
        "The models of bam-retrieval read held-out text of the Python documentation. At the "
        "training length the perplexity of the learned prior must not exceed that of RoPE by "
        "5%. Perplexity by position, up to many training lengths, is recorded for all."
    )
    null = "Perplexity of predicting every token by its frequency alone, over that of RoPE."
    recipes = MappingProxyType(
        {
            Tier.QUICK: _recipe(Tier.QUICK, 8),
            Tier.FULL: _recipe(Tier.FULL, 32),
            Tier.PAPER: _recipe(Tier.PAPER, 32),
        }
    )

    def trainings(self, tier: Tier, seed: int) -> Mapping[str, LanguageTraining]:
        """One model per variant."""
        return self.recipes[tier].trainings(seed)

    def parts(self, tier: Tier) -> Sequence[str]:
        """Every variant, as in bam-retrieval."""
        return self.recipes[tier].variants

    def measure_part(self, tier: Tier, seed: int, part: str) -> Numbers:
        """Perplexity at the training length and by window, of one variant."""
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
        return {
            f"{part}: inside": inside.by_length()[-1]["perplexity"],
            f"{part}: by window": windows,
            f"{part}: farthest": windows[-1],
            "frequency": _by_frequency(pieces[:, 1:].flatten().numpy()),
        }

    def judge(self, tier: Tier, numbers: Mapping[int, Numbers]) -> Verdict:
        """The ratio at the training length."""
        recipe = self.recipes[tier]
        own, reference = (by_seed(numbers, f"{v}: inside") for v in (recipe.judged, REFERENCE))
        ratios = [mine / other for mine, other in zip(own, reference, strict=True)]
        judgement = judge_below(ratios, limit=COMPARABLE)
        inside, far = (
            ", ".join(f"{v} {average(numbers, f'{v}: {place}'):.3g}" for v in recipe.variants)
            for place in ("inside", "farthest")
        )
        said = f"{judgement.reason} Perplexity at the training length: {inside}; "
        said += f"in the last window of {recipe.stretch} training lengths: {far}."
        return self.verdict(
            judgement._replace(reason=said),
            tier=tier,
            seeds=tuple(numbers),
            unit=f"times the perplexity of {REFERENCE}",
            null=average(numbers, "frequency") / average(numbers, f"{REFERENCE}: inside"),
        )

    def draw(self, tier: Tier, numbers: Mapping[int, Numbers]) -> list[Picture]:
        """Perplexity by position."""
        from matplotlib.figure import Figure

        recipe = self.recipes[tier]
        figure = Figure(figsize=(7, 3.8), layout="constrained")
        axes = figure.add_subplot(yscale="log")
        axes.set_xscale("log", base=2)
        for variant in recipe.variants:
            windows = curve(numbers, f"{variant}: by window")
            style = "-" if "SSMax" in variant else "--"
            axes.plot(range(1, len(windows) + 1), windows, style, label=variant)
        axes.axhline(average(numbers, "frequency"), color="grey", ls=":", label="by frequency")
        axes.set(xlabel="position, in training lengths", ylabel="perplexity")
        axes.legend(fontsize=6, ncols=2)
        caption = "Perplexity of held-out text by position; means over seeds."
        alt = "One line per encoding over the position, some rising beyond the training length."
        return [Picture("positions", figure, caption, alt)]


def _by_frequency(tokens: np.ndarray) -> float:
    """Perplexity of the frequencies of these very tokens: the best that no context allows."""
    share = np.bincount(tokens) / len(tokens)
    share = share[share > 0]
    return float(np.exp(-(share * np.log(share)).sum()))
