"""tunnel-hmm: does a small transformer filter a hidden Markov model, and for how long?

    error = mean over held-out sequences and steps of | H(model) - H(Bayes) |, in bits

inside the horizon (the length trained on) and beyond it, never averaged together. The authors use
learned absolute positions, whose rows beyond the horizon are never trained. Two more models have
a learned prior over distance instead; in one of them the header, which holds the matrices, is
exempt from it: a header is not far away, however long the sequence.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from bayesattn.claims.exhibits import belief_exhibit
from bayesattn.claims.panels import draw_curves, mean_curve, panels
from bayesattn.claims.registry import register
from bayesattn.claims.tunnels import Extrapolation, Extrapolations, TunnelRecipe, extrapolation
from bayesattn.ledger.study import Exhibit, Finding, Picture, Study, Tier
from bayesattn.ledger.trained import TunnelTraining
from bayesattn.stats import Outcome, judge_all, judge_below
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


class HMMRecipe(TunnelRecipe):
    """The same transformer under three ways to know the order."""

    states: int
    length: int
    layers: int
    stretch: int = 10
    """Beyond is up to so many times the horizon."""

    def training(self, variant: str, seed: int) -> TunnelTraining:
        if variant == POSITIONS:
            rows = 2 * self.states + self.stretch * self.length
            fields: dict[str, Any] = {"encoding": "learned", "max_position_embeddings": rows}
        else:
            fields = {"prior": "ggd", "prior_options": {"init": "alibi"}}
            fields["exempt"] = "header" if variant == EXEMPT else 0
        tunnel = HMM(self.states, self.states, self.length)
        return TunnelTraining(tunnel, self.transformer(self.layers, **fields), self.config(seed))

    def trainings(self, seed: int) -> dict[str, TunnelTraining]:
        return {variant: self.training(variant, seed) for variant in VARIANTS}


@register("tunnel-hmm")
class TunnelHMM(Study[HMMRecipe, Mapping[str, Extrapolation]]):
    """Trains transformers on fresh hidden Markov models and follows them past the horizon."""

    def measure(self, tier: Tier, seed: int) -> Mapping[str, Extrapolation]:
        recipe = self.recipes[tier]
        far = f"{recipe.stretch}x"
        return {
            name: extrapolation(training.fidelity(sequences=recipe.sequences, length=far))
            for name, training in recipe.trainings(seed).items()
        }

    def judge(self, tier: Tier, found: Extrapolations) -> Finding:
        """Inside first: what does not track the filter there has nothing to carry beyond."""
        own = [one[POSITIONS] for one in found.values()]
        ratios = [one.beyond.mae_tok / one.inside.mae_tok for one in own]
        parts = {
            "inside the horizon": judge_below([one.inside.mae_tok for one in own], limit=INSIDE),
            "beyond over inside": judge_below(ratios, limit=RATIO),
        }
        uniform = [one.inside.uniform_mae for one in own if one.inside.uniform_mae is not None]
        in_bits = parts["inside the horizon"].outcome is not Outcome.SUPPORTED
        told = ", ".join(
            f"{variant} {np.mean([one[variant].inside.mae_tok for one in found.values()]):.3g} "
            f"inside and {np.mean([one[variant].beyond.mae_tok for one in found.values()]):.3g} "
            "beyond"
            for variant in VARIANTS
        )
        return Finding(
            judge_all(parts),
            unit="bits inside" if in_bits else "times the error inside, beyond",
            null=float(np.mean(uniform)) if in_bits else 1.0,
            note=f"In bits: {told}.",
        )

    def draw(self, tier: Tier, found: Extrapolations) -> list[Picture]:
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

    def exhibits(self, tier: Tier, found: Extrapolations) -> list[Exhibit]:
        shown = self.recipes[tier].training(EXEMPT, 0)
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
