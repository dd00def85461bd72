"""bam-far-heads: do heads with β < 0 emerge, and does far retrieval need them?

    loss of accuracy = accuracy(model) - accuracy(model with k heads made local)

once for the k heads with the most negative β and, as a control, for as many heads drawn from the
others, each time at every length. Made local means the log-prior -r/2 from then on.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import torch

from bayesattn.claims.bam_retrieval import BamRetrieval
from bayesattn.claims.reach import ReachRecipe
from bayesattn.claims.registry import register
from bayesattn.evals.passkey import passkey
from bayesattn.ledger.language_models import LanguageTraining
from bayesattn.ledger.study import Claim, Picture, Study, Tier, Verdict
from bayesattn.models.open import LanguageModel
from bayesattn.priors import GeneralizedGaussian
from bayesattn.stats import judge_all, judge_effect, judge_given

SLOPE = 0.5
NEEDED = 0.2
"""Accuracy that the far heads must cost more than others."""
Head = tuple[int, int]
"""Layer and head."""


@dataclass(frozen=True, kw_only=True)
class FarHeadsRecipe(ReachRecipe):
    """The models of bam-retrieval, with some heads changed."""

    share: float = 0.25
    """Share of all heads that is made local."""
    draws: int = 5
    """Random choices of other heads."""


@dataclass(frozen=True, kw_only=True)
class FarHeads:
    """Shapes of all heads, and accuracies by length."""

    beta: list[float]
    as_trained: list[float]
    without_far: list[float]
    """With far heads made local."""
    without_others: list[float]
    """With as many others made local."""

    @property
    def effect(self) -> float:
        """What far heads cost more than others, at the farthest length."""
        return self.without_others[-1] - self.without_far[-1]

    @property
    def negative(self) -> float:
        """Share of heads with a negative shape."""
        return float(np.mean([beta < 0 for beta in self.beta]))


def _states(found: Mapping[int, FarHeads]) -> dict[str, list[float]]:
    """Accuracy by length in every state, means over seeds."""
    seeds = found.values()
    return {
        "as trained": np.mean([one.as_trained for one in seeds], 0).tolist(),
        "far heads made local": np.mean([one.without_far for one in seeds], 0).tolist(),
        "others made local": np.mean([one.without_others for one in seeds], 0).tolist(),
    }


def _recipe(tier: Tier, lengths: tuple[str, ...]) -> FarHeadsRecipe:
    recipe = BamRetrieval.recipes[tier]
    fields = {**vars(recipe), "lengths": lengths, "variants": (recipe.judged,)}
    return FarHeadsRecipe(**fields)


@register
class BamFarHeads(Study[FarHeadsRecipe, FarHeads]):
    """Makes far heads local and asks for passkeys again."""

    claim = Claim(
        id="bam-far-heads",
        statement="Heads with a negative shape β emerge in training, look far, and are needed for "
        "far retrieval.",
        source="Bianchessi et al., Bayesian Attention Mechanism, arXiv 2505.22842: section 3.3",
        reported="β < 0 is required for far retrieval (third-party notes on the paper)",
    )
    method = (
        "In the models of bam-retrieval that it is judged by, a quarter of all heads, those "
        "with the most negative β, are made local: log-prior -r/2. Passkeys are asked for again at "
        "several lengths. As many heads drawn at random from the others, several times, are the "
        "control. The claim needs heads with β < 0, and at the farthest length a loss of accuracy "
        "at least 0.2 larger than the control's. Without an accuracy of 0.2 to lose there is "
        "nothing to judge by."
    )
    null = "The loss of accuracy when as many other heads are made local."
    recipes = MappingProxyType(
        {
            Tier.QUICK: _recipe(Tier.QUICK, ("1x", "4x")),
            Tier.FULL: _recipe(Tier.FULL, ("1x", "4x", "16x", "64x")),
            Tier.PAPER: _recipe(Tier.PAPER, ("1x", "8x", "64x")),
        }
    )

    def trainings(self, tier: Tier, seed: int) -> Mapping[str, LanguageTraining]:
        """One model per variant."""
        return self.recipes[tier].trainings(seed)

    def measure(self, tier: Tier, seed: int) -> FarHeads:
        """β of all heads; accuracy by length as trained, without far heads, without others."""
        recipe = self.recipes[tier]
        shapes = betas(recipe.model(recipe.judged, seed, recipe.length))
        order = sorted(shapes, key=lambda head: shapes[head])
        count = max(1, round(recipe.share * len(order)))
        far, rest = order[:count], order[count:]
        rng = np.random.default_rng(seed)
        chosen = [
            [rest[i] for i in rng.choice(len(rest), min(count, len(rest)), replace=False)]
            for _ in range(recipe.draws)
        ]
        controls = [accuracies(recipe, seed, heads) for heads in chosen]
        return FarHeads(
            beta=[shapes[head] for head in sorted(shapes)],
            as_trained=accuracies(recipe, seed, []),
            without_far=accuracies(recipe, seed, far),
            without_others=np.mean(controls, axis=0).tolist(),
        )

    def judge(self, tier: Tier, found: Mapping[int, FarHeads]) -> Verdict:
        """Heads with β < 0 exist, and cost more than others at the farthest length."""
        recipe = self.recipes[tier]
        farthest = recipe.lengths[-1]
        negative = [one.negative for one in found.values()]
        effect = judge_effect([one.effect for one in found.values()], minimum=NEEDED)
        parts = {
            f"loss at {farthest} beyond the control's": effect,
            "share of heads with β < 0": judge_effect(negative),
        }
        accuracy = [one.as_trained[-1] for one in found.values()]
        to_lose = judge_effect(accuracy, minimum=NEEDED)
        judgement = judge_given(f"accuracy at {farthest} as trained", to_lose, judge_all(parts))
        told = "; ".join(
            f"{state} {', '.join(f'{value:.2f}' for value in values)}"
            for state, values in _states(found).items()
        )
        shown = f"{judgement.reason} Share of heads with β < 0: "
        shown += f"{np.mean(negative):.2f}. Accuracy at {', '.join(recipe.lengths)}: "
        # whichever part decides, the number to show is the loss
        return self.verdict(
            judgement._replace(
                reason=f"{shown}{told}.", value=effect.value, interval=effect.interval
            ),
            tier=tier,
            seeds=tuple(found),
            unit=f"accuracy lost at {recipe.lengths[-1]} beyond the control's",
            null=0.0,
        )

    def draw(self, tier: Tier, found: Mapping[int, FarHeads]) -> list[Picture]:
        """Accuracy by length, and the shapes."""
        from matplotlib.figure import Figure

        recipe = self.recipes[tier]
        figure = Figure(figsize=(8, 3.4), layout="constrained")
        left, right = figure.subplots(1, 2)
        factors = [float(length.removesuffix("x")) for length in recipe.lengths]
        for state, values in _states(found).items():
            left.plot(factors, values, "o-", label=state)
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
    """Of every layer, in order."""
    modules = model.model.modules()
    return [module for module in modules if isinstance(module, GeneralizedGaussian)]


def betas(model: LanguageModel) -> dict[Head, float]:
    """Shape of every head."""
    return {
        (layer, head): float(beta)
        for layer, prior in enumerate(priors(model))
        for head, beta in enumerate(prior.beta.detach())
    }


@torch.no_grad()
def make_local(model: LanguageModel, heads: Sequence[Head]) -> None:
    """Give these heads the log-prior -r/2."""
    for layer, head in heads:
        prior = priors(model)[layer]
        prior.theta_alpha[head] = math.log(SLOPE)
        prior.theta_beta[head] = 1.0


def accuracies(recipe: FarHeadsRecipe, seed: int, heads: Sequence[Head]) -> list[float]:
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
