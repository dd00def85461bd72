"""tunnel-bijection: does a small transformer eliminate hypotheses as Bayes does?

    error = mean over held-out sequences and steps of | H(model) - H(Bayes) |, in bits

The bijection of every sequence is new. With keys that never return the posterior is uniform over
the values not yet seen; with keys that return, known ones must also be looked up. The two have
different trivial predictors, so they are measured apart.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bayesattn.claims.registry import register
from bayesattn.ledger.exhibits import belief_exhibit
from bayesattn.ledger.study import (
    Exhibit,
    Picture,
    Recipe,
    Study,
    Tier,
    Verdict,
)
from bayesattn.ledger.summaries import judge_errors
from bayesattn.ledger.trained import TunnelTraining, mean
from bayesattn.models.architectures import Transformer
from bayesattn.training import TrainConfig
from bayesattn.tunnels import Bijection

LIMIT = 0.01
"""Bits: the upper end of what is claimed."""
VARIANTS = ("keys never return", "keys return")
SAMPLED = "sampled values"


@dataclass(frozen=True, kw_only=True)
class BijectionRecipe(Recipe):
    """Alphabet, model and training."""

    alphabet: int
    layers: int
    width: int
    heads: int = 4
    steps: int
    recall_steps: int
    """Steps with keys that return: recall takes longer to be found."""
    batch_size: int = 64
    lr: float = 3e-3
    sampled: bool
    """Also train on sampled values instead of posteriors."""
    sequences: int = 2000
    """Held-out sequences."""


@dataclass(frozen=True, kw_only=True)
class Elimination:
    """Errors of one model, and by step the entropies."""

    mae_tok: float
    mae_pos: float
    kl: float
    tv: float
    support: float
    recall: float | None
    """Where keys return."""
    uniform: float
    """Entropy error of the uniform predictor."""
    untrained: float
    """Of the same network before training."""
    entropy_model: list[float]
    entropy_bayes: list[float]
    error_by_step: list[float]


Found = Mapping[int, Mapping[str, Elimination]]


@register("tunnel-bijection")
class TunnelBijection(Study[BijectionRecipe, Mapping[str, Elimination]]):
    """Trains transformers on fresh bijections, with and without returning keys."""

    def trainings(self, tier: Tier, seed: int) -> Mapping[str, TunnelTraining]:
        """With and without returning keys; from sampled labels, too, if the recipe says so."""
        recipe = self.recipes[tier]
        variants = (*VARIANTS, SAMPLED) if recipe.sampled else VARIANTS
        return {variant: training(recipe, variant, seed) for variant in variants}

    def measure(self, tier: Tier, seed: int) -> Mapping[str, Elimination]:
        """Errors of each variant."""
        sequences = self.recipes[tier].sequences
        return {
            variant: _measure(training, sequences)
            for variant, training in self.trainings(tier, seed).items()
        }

    def judge(self, tier: Tier, found: Found) -> Verdict:
        """Both variants below the limit, or not; the worse one is quoted."""
        errors = {name: [one[name].mae_tok for one in found.values()] for name in VARIANTS}
        worst, judgement = judge_errors(errors, limit=LIMIT)
        return self.verdict(
            judgement,
            tier=tier,
            seeds=tuple(found),
            unit="bits",
            null=next(iter(found.values()))[worst].uniform,
        )

    def draw(self, tier: Tier, found: Found) -> list[Picture]:
        """Entropy of model and Bayes over the pairs seen, and the error at each."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(8, 3.4), layout="constrained")
        entropy, error = figure.subplots(1, 2)
        for colour, variant in enumerate(next(iter(found.values()))):
            own = [one[variant] for one in found.values()]
            model = np.mean([one.entropy_model for one in own], 0)
            bayes = np.mean([one.entropy_bayes for one in own], 0)
            wrong = np.mean([one.error_by_step for one in own], 0)
            steps = range(1, len(model) + 1)
            if variant != SAMPLED:
                entropy.plot(steps, bayes, color=f"C{colour}", lw=4, alpha=0.3)
                entropy.plot(steps, model, color=f"C{colour}", label=variant)
            error.plot(steps, wrong, color=f"C{colour}", label=variant)
        entropy.set(xlabel="pair", ylabel="entropy, bits", title="model (thin), Bayes (thick)")
        error.set(xlabel="pair", ylabel="|H(model) - H(Bayes)|, bits", yscale="log")
        error.legend(fontsize=8)
        entropy.legend(fontsize=8)
        caption = "Predictive entropy at each pair, and its error; means over seeds."
        alt = "Left, the model's entropy lies on that of Bayes; right, the error in bits."
        return [Picture("entropy", figure, caption, alt)]

    def exhibits(self, tier: Tier, found: Found) -> list[Exhibit]:
        """Beliefs over bijections whose keys return."""
        shown = self.trainings(tier, 0)[VARIANTS[1]]
        return [
            belief_exhibit(
                shown.model(),
                shown.tunnel,
                title="elimination, step by step",
                caption="A transformer learns a fresh bijection from pairs of keys and values. At "
                "every key it bets on the value; values that belong to other keys are out, and "
                "keys that return are looked up. The orange bars are exact.",
            )
        ]


def _measure(training: TunnelTraining, sequences: int) -> Elimination:
    part = training.fidelity(sequences=sequences).parts["inside"]
    curves = part.curves()
    assert isinstance(training.tunnel, Bijection)
    return Elimination(
        mae_tok=mean(part, "mae_tok"),
        mae_pos=mean(part, "mae_pos"),
        kl=mean(part, "kl"),
        tv=mean(part, "tv"),
        support=mean(part, "support"),
        recall=mean(part, "recall") if training.tunnel.replacement else None,
        uniform=mean(part, "mae_tok", "uniform"),
        untrained=training.untrained_mae(sequences=sequences),
        entropy_model=curves["entropy_model"],
        entropy_bayes=curves["entropy_bayes"],
        error_by_step=curves["mae_tok"],
    )


def training(recipe: BijectionRecipe, variant: str, seed: int) -> TunnelTraining:
    """How a variant is trained."""
    tunnel = Bijection(recipe.alphabet, replacement=variant == VARIANTS[1])
    config = TrainConfig(
        steps=recipe.recall_steps if tunnel.replacement else recipe.steps,
        batch_size=recipe.batch_size,
        lr=recipe.lr,
        labels="sampled" if variant == SAMPLED else "posterior",
        seed=seed,
        threads=1,
        dynamics=variant == VARIANTS[0],  # dynamics-frame-precision follows this one
    )
    return TunnelTraining(tunnel, architecture(recipe), config)


def architecture(recipe: BijectionRecipe) -> Transformer:
    """Half the heads start local, which finds the key before a value sooner."""
    return Transformer(
        layers=recipe.layers,
        width=recipe.width,
        heads=recipe.heads,
        prior="ggd",
        prior_options={"init": "mixed"},
    )
