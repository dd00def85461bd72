"""bam-perplexity: is the reach paid for with perplexity?

    ratio = perplexity(GGD + SSMax) / perplexity(RoPE)

on held-out text, at the training length; by position up to many times that length beside it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from bayesattn.claims.bam_retrieval import BamRetrieval
from bayesattn.claims.reach import ReachRecipe, VariantStudy
from bayesattn.claims.registry import register
from bayesattn.evals.perplexity import held_out, perplexity
from bayesattn.ledger.study import Claim, Picture, Tier, Verdict
from bayesattn.stats import judge_below

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


@dataclass(frozen=True, kw_only=True)
class Perplexities:
    """Of one variant."""

    inside: float
    """At the training length."""
    by_window: list[float]
    frequency: float
    """Of predicting every token by its frequency."""


Found = Mapping[int, Mapping[str, Perplexities]]


def _recipe(tier: Tier, stretch: int) -> PerplexityRecipe:
    return PerplexityRecipe(**vars(BamRetrieval.recipes[tier]), stretch=stretch)


@register
class BamPerplexity(VariantStudy[PerplexityRecipe, Perplexities]):
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

    def measure_part(self, tier: Tier, seed: int, part: str) -> Perplexities:
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
        return Perplexities(
            inside=inside.by_length()[-1]["perplexity"],
            by_window=windows,
            frequency=_by_frequency(pieces[:, 1:].flatten().numpy()),
        )

    def judge(self, tier: Tier, found: Found) -> Verdict:
        """The ratio at the training length."""
        recipe = self.recipes[tier]
        ratios = [one[recipe.judged].inside / one[REFERENCE].inside for one in found.values()]
        reference = [one[REFERENCE] for one in found.values()]
        judgement = judge_below(ratios, limit=COMPARABLE)
        inside, far = (
            ", ".join(f"{v} {mean:.3g}" for v, mean in means.items())
            for means in (
                {v: np.mean([one[v].inside for one in found.values()]) for v in recipe.variants},
                {v: np.mean([o[v].by_window[-1] for o in found.values()]) for v in recipe.variants},
            )
        )
        said = f"{judgement.reason} Perplexity at the training length: {inside}; "
        said += f"in the last window of {recipe.stretch} training lengths: {far}."
        return self.verdict(
            judgement._replace(reason=said),
            tier=tier,
            seeds=tuple(found),
            unit=f"times the perplexity of {REFERENCE}",
            null=sum(one.frequency for one in reference) / sum(one.inside for one in reference),
        )

    def draw(self, tier: Tier, found: Found) -> list[Picture]:
        """Perplexity by position."""
        from matplotlib.figure import Figure

        recipe = self.recipes[tier]
        figure = Figure(figsize=(7, 3.8), layout="constrained")
        axes = figure.add_subplot(yscale="log")
        axes.set_xscale("log", base=2)
        frequency = float(np.mean([one[REFERENCE].frequency for one in found.values()]))
        for variant in recipe.variants:
            windows = np.mean([one[variant].by_window for one in found.values()], 0)
            style = "-" if "SSMax" in variant else "--"
            axes.plot(range(1, len(windows) + 1), windows, style, label=variant)
        axes.axhline(frequency, color="grey", ls=":", label="by frequency")
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
