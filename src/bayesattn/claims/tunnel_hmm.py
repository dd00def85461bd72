"""tunnel-hmm: does a small transformer filter a hidden Markov model, and for how long?

    error = mean over held-out sequences and steps of | H(model) - H(Bayes) |, in bits

inside the horizon (the length trained on) and beyond it, never averaged together. The authors use
learned absolute positions, whose rows beyond the horizon are never trained. Two more models have
a learned prior over distance instead; in one of them the header, which holds the matrices, is
exempt from it: a header is not far away, however long the sequence.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from bayesattn.claims.panels import draw_curves, mean_curve, panels
from bayesattn.claims.registry import register
from bayesattn.evals.fidelity import Fidelity, Part
from bayesattn.ledger.exhibits import belief_exhibit
from bayesattn.ledger.study import (
    Exhibit,
    Picture,
    Recipe,
    Study,
    Tier,
    Verdict,
)
from bayesattn.ledger.trained import TunnelTraining, mean
from bayesattn.models.architectures import Transformer
from bayesattn.stats import Outcome, judge_all, judge_below
from bayesattn.training import TrainConfig
from bayesattn.tunnels import HMM

POSITIONS, PRIOR, EXEMPT = VARIANTS = (
    "learned positions",
    "learned prior",
    "learned prior, header exempt",
)
INSIDE = 0.05
"""Bits: the larger of the two published errors inside the horizon."""
RATIO = 2.0
"""The authors call a filter algorithmic if its error beyond the horizon is less than so many
times that inside."""


@dataclass(frozen=True, kw_only=True)
class HMMRecipe(Recipe):
    """Task, model and training."""

    states: int
    length: int
    layers: int
    width: int
    heads: int
    steps: int
    batch_size: int = 64
    lr: float = 2e-3
    stretch: int = 10
    """Beyond is up to so many times the horizon."""
    sequences: int = 1000
    """Held-out sequences."""


@dataclass(frozen=True, kw_only=True)
class Errors:
    """One model on one side of the horizon."""

    kl: float
    mae_tok: float
    mae_pos: float
    tv: float
    mode: float
    uniform_kl: float | None
    """Of the uniform predictor; None in records of tunnel-hmm, which once kept its error only."""
    uniform_mae: float | None
    """None in records of ours-prior-tunnel, which once kept its divergence only."""
    constant_entropy: float
    """Error of the best constant entropy."""
    by_step: list[float]
    """Entropy error; empty where records once kept none."""


@dataclass(frozen=True, kw_only=True)
class Extrapolation:
    """Errors of one model inside and beyond the horizon that it was trained to."""

    inside: Errors
    beyond: Errors


Found = Mapping[int, Mapping[str, Extrapolation]]
"""By seed and training."""


def extrapolation(fidelity: Fidelity) -> Extrapolation:
    inside, beyond = (_errors(fidelity.parts[side]) for side in ("inside", "beyond"))
    return Extrapolation(inside=inside, beyond=beyond)


def _errors(part: Part) -> Errors:
    return Errors(
        **{name: mean(part, name) for name in ("kl", "mae_tok", "mae_pos", "tv", "mode")},
        uniform_kl=mean(part, "kl", "uniform"),
        uniform_mae=mean(part, "mae_tok", "uniform"),
        constant_entropy=part.entropy_mae["constant"],
        by_step=part.curves()["mae_tok"],
    )


@register("tunnel-hmm")
class TunnelHMM(Study[HMMRecipe, Mapping[str, Extrapolation]]):
    """Trains transformers on fresh hidden Markov models and follows them past the horizon."""

    def trainings(self, tier: Tier, seed: int) -> Mapping[str, TunnelTraining]:
        recipe = self.recipes[tier]
        return {variant: training(recipe, variant, seed) for variant in VARIANTS}

    def measure(self, tier: Tier, seed: int) -> Mapping[str, Extrapolation]:
        recipe = self.recipes[tier]
        far = f"{recipe.stretch}x"
        return {
            name: extrapolation(training.fidelity(sequences=recipe.sequences, length=far))
            for name, training in self.trainings(tier, seed).items()
        }

    def judge(self, tier: Tier, found: Found) -> Verdict:
        """Inside first: what does not track the filter there has nothing to carry beyond."""
        own = [one[POSITIONS] for one in found.values()]
        ratios = [one.beyond.mae_tok / one.inside.mae_tok for one in own]
        parts = {
            "inside the horizon": judge_below([one.inside.mae_tok for one in own], limit=INSIDE),
            "beyond over inside": judge_below(ratios, limit=RATIO),
        }
        judgement = judge_all(parts)
        uniform = [one.inside.uniform_mae for one in own if one.inside.uniform_mae is not None]
        in_bits = parts["inside the horizon"].outcome is not Outcome.SUPPORTED
        told = ", ".join(
            f"{variant} {np.mean([one[variant].inside.mae_tok for one in found.values()]):.3g} "
            f"inside and {np.mean([one[variant].beyond.mae_tok for one in found.values()]):.3g} "
            "beyond"
            for variant in VARIANTS
        )
        return self.verdict(
            judgement._replace(reason=f"{judgement.reason} In bits: {told}."),
            tier=tier,
            seeds=tuple(found),
            unit="bits inside" if in_bits else "times the error inside, beyond",
            null=float(np.mean(uniform)) if in_bits else 1.0,
        )

    def draw(self, tier: Tier, found: Found) -> list[Picture]:
        figure, (axes,) = panels(size=(7, 3.6))
        level = np.mean([one[POSITIONS].beyond.constant_entropy for one in found.values()])
        axes.axhline(float(level), color="grey", ls=":", label="best constant entropy")
        axes.axvline(self.recipes[tier].length, color="grey", lw=1)
        draw_curves(axes, {name: mean_curve(found, _by_step(name)) for name in VARIANTS})
        axes.set(xlabel="step (line: horizon of training)", ylabel="|H(model) - H(Bayes)|, bits")
        axes.set(yscale="log", xscale="log")
        caption = "Entropy error at every step, inside and beyond the horizon; means over seeds."
        alt = "One line per model over the steps, with the horizon marked."
        return [Picture("horizon", figure, caption, alt)]

    def exhibits(self, tier: Tier, found: Found) -> list[Exhibit]:
        shown = self.trainings(tier, 0)[EXEMPT]
        return [
            belief_exhibit(
                shown.model(),
                shown.tunnel.stretched(2),
                title="filtering, step by step",
                caption="The first tokens are the matrices of a fresh hidden Markov model (rows T "
                "of transitions, E of emissions), then its symbols. After every symbol the "
                "transformer bets on the hidden state, here up to twice as long as it was trained "
                "for. The orange bars are exact.",
            )
        ]


def _by_step(name: str) -> Callable[[Mapping[str, Extrapolation]], list[float]]:
    return lambda one: [*one[name].inside.by_step, *one[name].beyond.by_step]


def training(recipe: HMMRecipe, variant: str, seed: int) -> TunnelTraining:
    config = TrainConfig(
        steps=recipe.steps,
        batch_size=recipe.batch_size,
        lr=recipe.lr,
        seed=seed,
        threads=1,
    )
    tunnel = HMM(recipe.states, recipe.states, recipe.length)
    return TunnelTraining(tunnel, architecture(recipe, variant), config)


def architecture(recipe: HMMRecipe, variant: str) -> Transformer:
    """The same transformer under three ways to know the order."""
    plain = Transformer(layers=recipe.layers, width=recipe.width, heads=recipe.heads)
    if variant == POSITIONS:
        rows = 2 * recipe.states + recipe.stretch * recipe.length
        return replace(plain, encoding="learned", max_positions=rows)
    local = {"init": "alibi"}
    return replace(plain, prior="ggd", prior_options=local, exempt_header=variant == EXEMPT)
