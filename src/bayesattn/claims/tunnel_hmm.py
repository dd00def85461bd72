"""tunnel-hmm: does a small transformer filter a hidden Markov model, and for how long?

    error = mean over held-out sequences and steps of | H(model) - H(Bayes) |, in bits

inside the training length and beyond it, never averaged together. The authors use learned
absolute positions, whose rows beyond the training length are never trained. Two more models have
a prior over distance instead, from which the header is exempt: it holds the matrices, and is not
far away however long the sequence. One prior is learned; the other is so steep that no head can
tell how long the filter has run.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from bayesattn.claims.bank import registered_training
from bayesattn.claims.exhibits import belief_exhibit
from bayesattn.claims.panels import draw_curves, mean_curve, panels
from bayesattn.claims.registry import register
from bayesattn.claims.tunnels import Extrapolation, Extrapolations, TunnelRecipe, extrapolation
from bayesattn.ledger.study import Exhibit, Picture, Study, Tier, Value
from bayesattn.ledger.trained import TunnelTraining
from bayesattn.ledger.typed import Stored
from bayesattn.models.architectures import Transformer
from bayesattn.training import TrainConfig
from bayesattn.tunnels import HMM

POSITIONS, EXEMPT, STEEP = VARIANTS = ("learned positions", "learned prior", "steep slopes")
LEARNT = 0.1
"""Bits: the premise."""
NEAR = 1.5
"""How far the authors' first look beyond goes, in training lengths."""
FAR = 10
SLOPES = [4.0, 2.0, 1.0, 0.5]
"""One for each head, so steep that none sees past some ten observations."""


class SteepRecipe(Stored):
    """The filter that is asked at ten times its training length."""

    states: int
    length: int
    layers: int
    width: int
    steps: int


class HMMRecipe(TunnelRecipe):
    """Transformers under three ways to know the order."""

    states: int
    length: int
    layers: int
    stretch: float
    """Beyond is up to so many times the training length."""
    steep: SteepRecipe
    bank: str = ""
    """The model with learned positions, by its name and hash in the bank; trained here if empty."""

    def training(self, variant: str, seed: int) -> TunnelTraining:
        if variant == STEEP:
            return self._steep_training(seed)
        if variant == POSITIONS and self.bank:
            name, digest = self.bank.split()
            return registered_training(name, digest, seed)
        if variant == POSITIONS:
            rows = 2 * self.states + round(self.stretch * self.length)
            fields: dict[str, Any] = {"encoding": "learned", "max_position_embeddings": rows}
        else:
            fields = {"prior": "ggd", "prior_options": {"init": "alibi"}, "exempt": "header"}
        tunnel = HMM(self.states, self.states, self.length)
        return TunnelTraining(tunnel, self.transformer(self.layers, **fields), self.config(seed))

    def _steep_training(self, seed: int) -> TunnelTraining:
        own = self.steep
        network = Transformer(
            layers=own.layers,
            width=own.width,
            heads=len(SLOPES),
            prior="laplace",
            prior_options={"slopes": SLOPES},
            exempt="header",
        )
        config = TrainConfig(
            steps=own.steps,
            batch_size=self.batch_size,
            optimizer="muon",
            lr=0.02,
            seed=seed,
            threads=1,
        )
        return TunnelTraining(HMM(own.states, own.states, own.length), network, config)

    def trainings(self, seed: int) -> dict[str, TunnelTraining]:
        """Those that are not in the bank."""
        missing = [name for name in VARIANTS if name != POSITIONS or not self.bank]
        return {variant: self.training(variant, seed) for variant in missing}


@register("tunnel-hmm")
class TunnelHMM(Study[HMMRecipe, Mapping[str, Extrapolation]]):
    """Follows filters of fresh hidden Markov models past their training length."""

    def measure(self, tier: Tier, seed: int) -> Mapping[str, Extrapolation]:
        recipe = self.recipes[tier]
        stretches = {POSITIONS: recipe.stretch, EXEMPT: recipe.stretch, STEEP: FAR}
        return {
            name: extrapolation(
                recipe.training(name, seed).fidelity(sequences=recipe.sequences, length=f"{far}x")
            )
            for name, far in stretches.items()
        }

    def values(self, tier: Tier, one: Mapping[str, Extrapolation]) -> Mapping[str, Value]:
        length = self.recipes[tier].length
        positions, prior, steep = (one[name] for name in VARIANTS)
        near = float(np.mean(positions.beyond.by_step[: round((NEAR - 1) * length)]))
        constant = positions.beyond.constant_entropy
        ratio = steep.beyond.mae_tok / steep.inside.mae_tok
        return {
            "inside": Value(positions.inside.mae_tok, positions.inside.constant_entropy),
            "half-beyond": Value(near, constant, learnt(positions)),
            "far-beyond": Value(positions.beyond.mae_tok, constant, learnt(positions)),
            "learned-prior": Value(
                prior.beyond.mae_tok, prior.beyond.constant_entropy, learnt(prior)
            ),
            "ten-times": Value(ratio, steep.inside.mae_tok, learnt(steep)),
        }

    def draw(self, tier: Tier, found: Extrapolations) -> list[Picture]:
        figure, (axes,) = panels(size=(7, 3.6))
        level = np.mean([one[POSITIONS].beyond.constant_entropy for one in found.values()])
        axes.axhline(float(level), color="grey", ls=":", label="best constant entropy")
        axes.axvline(self.recipes[tier].length, color="grey", lw=1)
        draw_curves(
            axes,
            {
                name: mean_curve(
                    found, lambda one, v=name: [*one[v].inside.by_step, *one[v].beyond.by_step]
                )
                for name in VARIANTS
            },
        )
        axes.set(xlabel="step (line: training length of the first two)")
        axes.set(ylabel="|H(model) - H(Bayes)|, bits", yscale="log", xscale="log")
        caption = "Entropy error at every step, inside and beyond the training length, over seeds."
        alt = "One line per model over the steps, with the training length marked."
        return [Picture("horizon", figure, caption, alt)]

    def exhibits(self, tier: Tier, found: Extrapolations) -> list[Exhibit]:
        shown = self.recipes[tier].training(STEEP, min(found))
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


def learnt(one: Extrapolation) -> bool:
    """The premise: the filter is tracked where it was trained."""
    return one.inside.mae_tok < LEARNT
