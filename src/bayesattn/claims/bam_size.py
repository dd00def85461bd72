"""bam-size: what the learned prior costs in parameters.

    trained(model with the prior) - trained(model without) = 2 · heads · layers

Whole models are built on the meta device, which allocates nothing, and everything that trains is
counted: a prior that hid a parameter somewhere else in the model would show.
"""

from collections.abc import Mapping

import torch

from bayesattn.claims.panels import panels
from bayesattn.claims.registry import register
from bayesattn.ledger.study import Picture, Recipe, Study, Tier, Value
from bayesattn.ledger.typed import Stored
from bayesattn.models import SIZES, BayesForCausalLM


class SizeRecipe(Recipe):
    """Which of the authors' models to count."""

    models: tuple[str, ...] = ("l6", "l8", "l12", "l15", "l18", "l24")


class Counts(Stored):
    """Trained parameters of one model."""

    heads_layers: int
    prior: int
    ssmax: int
    prior_with_location: int
    whole: int
    """Of the model with the prior."""


def trained(model: str, **settings: object) -> int:
    """Number of parameters that train in one of the authors' models."""
    with torch.device("meta"):
        built = BayesForCausalLM(SIZES[model](**settings))
    return sum(p.numel() for p in built.parameters() if p.requires_grad)


@register("bam-size")
class BamSize(Study[SizeRecipe, Mapping[str, Counts]]):
    """Counts the trained parameters of every size of the authors, with and without the prior."""

    def measure(self, tier: Tier, seed: int) -> Mapping[str, Counts]:
        """Counts by model; the seed plays no part."""
        return {model: _count(model) for model in self.recipes[tier].models}

    def values(self, tier: Tier, one: Mapping[str, Counts]) -> Mapping[str, Value]:
        """How far the worst model is off, and by how much the one with a location must be."""
        counts = one.values()
        located = min(own.prior_with_location - 2 * own.heads_layers for own in counts)
        return {
            "prior": Value(max(abs(own.prior - 2 * own.heads_layers) for own in counts), located),
            "ssmax": Value(max(abs(own.ssmax - own.heads_layers) for own in counts), located),
        }

    def draw(self, tier: Tier, found: Mapping[int, Mapping[str, Counts]]) -> list[Picture]:
        models = next(iter(found.values()))
        counts = models.values()
        x = [one.heads_layers for one in counts]
        figure, (axes,) = panels(size=(7, 3.6))
        axes.plot(x, [2 * n for n in x], "--", color="C0", label="2 · heads · layers")
        axes.plot(x, [one.prior for one in counts], "o", color="C0", label="prior, counted")
        axes.plot(x, x, "--", color="C1", label="heads · layers")
        axes.plot(x, [one.ssmax for one in counts], "s", color="C1", label="SSMax, counted")
        axes.set(xscale="log", yscale="log")
        axes.set_xticks(x, list(models))
        axes.minorticks_off()
        axes.set(xlabel="model, placed at heads · layers", ylabel="trained parameters")
        axes.legend(fontsize=8)
        caption = "Trained parameters of the prior and of SSMax in the authors' six models."
        alt = "Counts as points; 2 · heads · layers and heads · layers as dashed lines."
        return [Picture("counts", figure, caption, alt)]


def _count(model: str) -> Counts:
    config = SIZES[model]()
    plain = trained(model, prior="uniform", ssmax=False)
    with_prior = trained(model, prior="ggd", ssmax=False)
    located = trained(model, prior="ggd", prior_options={"learn_mu": True}, ssmax=False)
    return Counts(
        heads_layers=config.num_attention_heads * config.num_hidden_layers,
        prior=with_prior - plain,
        ssmax=trained(model, prior="ggd", ssmax=True) - with_prior,
        prior_with_location=located - plain,
        whole=with_prior,
    )
