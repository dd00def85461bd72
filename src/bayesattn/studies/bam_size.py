"""bam-size: what the learned prior costs in parameters.

    trained(model with the prior) - trained(model without) = 2 · heads · layers

Whole models are built on the meta device, which allocates nothing, and everything that trains is
counted: a prior that hid a parameter somewhere else in the model would show.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import torch

from bayesattn.models import RECIPES, BayesForCausalLM
from bayesattn.stats import Outcome, judge_all, judge_identity
from bayesattn.studies.registry import register
from bayesattn.studies.study import Claim, Numbers, Picture, Recipe, Study, Tier, Verdict

HEADLINE = "l12"


@dataclass(frozen=True, kw_only=True)
class SizeRecipe(Recipe):
    """Which of the authors' models to count."""

    models: tuple[str, ...] = ("l6", "l8", "l12", "l15", "l18", "l24")


def trained(model: str, **settings: object) -> int:
    """Number of parameters that train in one of the authors' models."""
    with torch.device("meta"):
        built = BayesForCausalLM(RECIPES[model](**settings))
    return sum(p.numel() for p in built.parameters() if p.requires_grad)


@register
class BamSize(Study[SizeRecipe]):
    """Counts the trained parameters of every size of the authors, with and without the prior."""

    claim = Claim(
        id="bam-size",
        statement="The learned prior adds 2 · heads · layers trained parameters, and SSMax adds "
        "heads · layers.",
        source="Bianchessi et al., Bayesian Attention Mechanism, arXiv 2505.22842: introduction",
        reported="384 (12 layers of 16 heads)",
    )
    method = (
        "Each of the authors' six model sizes is built without a prior, with a generalized "
        "Gaussian prior, and with SSMax as well. All trained parameters are counted; the "
        "differences must be 2 · heads · layers and heads · layers."
    )
    null = (
        "The same count for a prior that also trains its location, which must come out larger than "
        "2 · heads · layers in every model."
    )
    recipes = dict.fromkeys(Tier, SizeRecipe(seeds=1))  # a count costs the same in every tier

    def measure(self, tier: Tier, seed: int) -> Numbers:
        """Counts for each model; the seed plays no part."""
        found: dict[str, list[int]] = {}
        for model in self.recipes[tier].models:
            config = RECIPES[model]()
            heads_layers = config.num_attention_heads * config.num_hidden_layers
            plain = trained(model, prior="uniform", ssmax=False)
            with_prior = trained(model, prior="ggd", ssmax=False)
            counts = {
                "heads · layers": heads_layers,
                "prior": with_prior - plain,
                "SSMax": trained(model, prior="ggd", ssmax=True) - with_prior,
                "prior with location": trained(
                    model, prior="ggd", prior_options={"learn_mu": True}, ssmax=False
                )
                - plain,
                "whole model": with_prior,
            }
            for name, count in counts.items():
                found.setdefault(name, []).append(count)
        return found

    def judge(self, tier: Tier, numbers: Mapping[int, Numbers]) -> Verdict:
        """Exact for every model, or refuted."""
        counts = _counts(numbers)
        expected = counts["heads · layers"]
        off = {
            name: [count - factor * hl for count, hl in zip(counts[name], expected, strict=True)]
            for name, factor in (("prior", 2), ("SSMax", 1), ("prior with location", 2))
        }
        control = off.pop("prior with location")
        judgement = judge_all(
            {
                name: judge_identity([abs(error) for error in errors], control, tolerance=0)
                for name, errors in off.items()
            }
        )
        models = self.recipes[tier].models
        headline = counts["prior"][models.index(HEADLINE)]
        if judgement.outcome is Outcome.SUPPORTED:
            share = headline / counts["whole model"][models.index(HEADLINE)]
            reason = (
                f"All {len(models)} model sizes have exactly 2 · heads · layers prior and "
                f"heads · layers SSMax parameters; in {HEADLINE} the prior is {share:.1e} of all."
            )
            judgement = judgement._replace(reason=reason)
        return self.verdict(
            judgement._replace(value=headline),
            tier=tier,
            seeds=tuple(numbers),
            unit=f"parameters in {HEADLINE}",
            null=counts["prior with location"][models.index(HEADLINE)],
        )

    def draw(self, tier: Tier, numbers: Mapping[int, Numbers]) -> list[Picture]:
        """Counts over heads times layers."""
        from matplotlib.figure import Figure

        counts = _counts(numbers)
        x = counts["heads · layers"]
        figure = Figure(figsize=(7, 3.6), layout="constrained")
        axes = figure.add_subplot(xscale="log", yscale="log")
        axes.plot(x, [2 * n for n in x], "--", color="C0", label="2 · heads · layers")
        axes.plot(x, counts["prior"], "o", color="C0", label="prior, counted")
        axes.plot(x, x, "--", color="C1", label="heads · layers")
        axes.plot(x, counts["SSMax"], "s", color="C1", label="SSMax, counted")
        axes.set_xticks(x, self.recipes[tier].models)
        axes.minorticks_off()
        axes.set(xlabel="model, placed at heads · layers", ylabel="trained parameters")
        axes.legend(fontsize=8)
        caption = "Trained parameters of the prior and of SSMax in the authors' six models."
        alt = "Counts as points; 2 · heads · layers and heads · layers as dashed lines."
        return [Picture("counts", figure, caption, alt)]


def _counts(numbers: Mapping[int, Numbers]) -> Mapping[str, list[int]]:
    return cast(Mapping[str, list[int]], next(iter(numbers.values())))
