"""bam-far-heads: do heads with β < 0 emerge, and does far retrieval need them?

    loss of accuracy = accuracy(model) - accuracy(model with k heads made local)

once for the k heads with the most negative β and, as a control, for as many heads drawn from the
others, each time at every length. Made local means the log-prior -r/2 from then on.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from bayesattn.claims.bam_passkeys import PasskeyRecipe
from bayesattn.claims.panels import mean_curve, panels
from bayesattn.claims.registry import register
from bayesattn.evals.passkey import passkey
from bayesattn.ledger.study import Picture, Study, Tier
from bayesattn.ledger.typed import Stored
from bayesattn.models.open import LanguageModel
from bayesattn.priors import GeneralizedGaussian

SLOPE = 0.5
LayerHead = tuple[int, int]


class FarHeadsRecipe(PasskeyRecipe):
    """The models of bam-retrieval, with some heads changed."""

    share: float = 0.25
    """Share of all heads that is made local."""
    draws: int = 5
    """Random choices of other heads."""


class FarHeads(Stored):
    """Shapes of all heads; accuracies by length as trained and with heads made local."""

    beta: list[float]
    as_trained: list[float]
    without_far: list[float]
    without_others: list[float]

    @property
    def effect(self) -> float:
        """Accuracy that far heads cost more than others, at the farthest length."""
        return self.without_others[-1] - self.without_far[-1]


def _states(found: Mapping[int, FarHeads]) -> dict[str, list[float]]:
    """Accuracy by length, means over seeds."""
    return {
        "as trained": mean_curve(found, lambda one: one.as_trained),
        "far heads made local": mean_curve(found, lambda one: one.without_far),
        "others made local": mean_curve(found, lambda one: one.without_others),
    }


@register("bam-far-heads")
class BamFarHeads(Study[FarHeadsRecipe, FarHeads]):
    """Makes far heads local and asks for passkeys again."""

    def measure(self, tier: Tier, seed: int) -> FarHeads:
        recipe = self.recipes[tier]
        shapes = betas(recipe.model(recipe.judged, seed, recipe.length))
        order = sorted(shapes, key=lambda head: shapes[head])
        count = max(1, round(recipe.share * len(order)))
        far, rest = order[:count], order[count:]
        rng = np.random.default_rng(seed)
        controls: list[list[float]] = []
        for _ in range(recipe.draws):
            others = rng.choice(len(rest), min(count, len(rest)), replace=False)
            controls.append(accuracies(recipe, seed, [rest[int(at)] for at in others]))
        return FarHeads(
            beta=[shapes[head] for head in sorted(shapes)],
            as_trained=accuracies(recipe, seed, []),
            without_far=accuracies(recipe, seed, far),
            without_others=np.mean(controls, axis=0).tolist(),
        )

    def draw(self, tier: Tier, found: Mapping[int, FarHeads]) -> list[Picture]:
        figure, (left, right) = panels(2)
        for state, values in _states(found).items():
            left.plot(self.recipes[tier].factors, values, "o-", label=state)
        left.set_xscale("log", base=2)
        left.set(xlabel="prompt, in training lengths", ylabel="passkeys retrieved", ylim=(0, 1.05))
        left.legend(fontsize=8)
        for seed, one in found.items():
            right.plot(sorted(one.beta), label=f"seed {seed}")
        right.axhline(0, color="grey", lw=1)
        right.set(xlabel="head, in order of β", ylabel="β after training")
        right.legend(fontsize=8)
        caption = "Retrieval with far or other heads made local, and the learned shapes."
        alt = "Left: accuracy over length in three states. Right: sorted shapes per seed."
        return [Picture("heads", figure, caption, alt)]


def priors(model: LanguageModel) -> list[GeneralizedGaussian]:
    modules = model.model.modules()
    return [module for module in modules if isinstance(module, GeneralizedGaussian)]


def betas(model: LanguageModel) -> dict[LayerHead, float]:
    return {
        (layer, head): float(beta)
        for layer, prior in enumerate(priors(model))
        for head, beta in enumerate(prior.beta.detach())
    }


@torch.no_grad()
def make_local(model: LanguageModel, heads: Sequence[LayerHead]) -> None:
    """Give these heads the log-prior -r/2."""
    for layer, head in heads:
        prior = priors(model)[layer]
        prior.theta_alpha[head] = math.log(SLOPE)
        prior.theta_beta[head] = 1.0


def accuracies(recipe: FarHeadsRecipe, seed: int, heads: Sequence[LayerHead]) -> list[float]:
    """By length, with these heads made local."""
    model = recipe.model(recipe.judged, seed, recipe.length)
    make_local(model, heads)
    found = passkey(
        model,
        ",".join(recipe.lengths),
        depths=recipe.depths,
        samples=recipe.samples,
        seed=seed,
        tolerance=recipe.tolerance,
    )
    return [cell.accuracy for cell in found.by_length()]
