"""What ours-prior-tunnel trains: every way to know positions, on tunnels that can be stretched.

Trained at one horizon, asked far beyond it:

    hmm         ten times as many observations
    bijection   ten times as many pairs, keys drawn with replacement; the vocabulary is fixed, so
                the alphabet is larger than a trained sequence can use up, and longer sequences
                show more distinct keys than any in training
    recall      ten times the filler and ten times the pairs, of keys and values that are all known
                from training, only never so many at once

Learned absolute positions have rows up to the longest sequence asked for, and those beyond the
horizon are never trained.
"""

from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from bayesattn.claims.equal_terms import FOUND
from bayesattn.evals.fidelity import Fidelity, measure_stretched
from bayesattn.evals.fidelity import measure as measure_fidelity
from bayesattn.ledger.study import Recipe
from bayesattn.ledger.trained import TunnelTraining
from bayesattn.models.architectures import Architecture, Mamba, Transformer, match_parameters
from bayesattn.models.architectures.matching import count_parameters
from bayesattn.training import TrainConfig
from bayesattn.tunnels import HMM, Bijection, Recall, Tunnel

NOPE, LEARNED, ROPE, ALIBI, T5 = "NoPE", "learned positions", "RoPE", "ALiBi", "T5 buckets"
STUDENT, GGD_UNIFORM, GGD, EXEMPT = "Student", "GGD uniform", "GGD alibi", "GGD alibi, exempt"
SHARP = "GGD sharp, exempt"
LOCAL = {"init": "alibi"}
ENCODINGS: dict[str, dict[str, Any]] = {
    NOPE: {},
    LEARNED: {"encoding": "learned"},
    ROPE: {"encoding": "rope"},
    ALIBI: {"prior": "laplace"},
    T5: {"prior": "bucketed"},
    STUDENT: {"prior": "student"},
    GGD_UNIFORM: {"prior": "ggd"},
    GGD: {"prior": "ggd", "prior_options": LOCAL},
    EXEMPT: {"prior": "ggd", "prior_options": LOCAL, "exempt_header": True},
    SHARP: {"prior": "ggd", "prior_options": {"init": "sharp"}, "exempt_header": True},
}
"""Fields of the transformer. Only the hmm has a header that could be exempt."""
SSMAX = " + SSMax"
LENGTHS = (0.5, 1.0, 2.0)
"""Of mixed lengths: the longest one is then the horizon."""
MUON: dict[str, Any] = {"optimizer": "muon", "lr": 0.02}


@dataclass(frozen=True, kw_only=True)
class Ingredient:
    """What is changed of GGD alibi with exempt header on the hmm."""

    architecture: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    steep: bool = False
    """Fixed slopes so steep that no head sees past some ten observations."""
    recurrent: bool = False
    """Mamba-2 of as many parameters instead, which carries a state along."""
    long: int = 0
    """How many times a long training it has; once the usual steps if 0."""


INGREDIENTS = {
    "mixed lengths": Ingredient(training={"lengths": LENGTHS}),
    "averaged weights": Ingredient(training={"ema": 0.999}),
    # no head can prefer what is far away
    "positive shape": Ingredient(architecture={"prior_options": {**LOCAL, "positive": True}}),
    "fixed slopes": Ingredient(architecture={"prior": "laplace", "prior_options": {}}),
    "long": Ingredient(long=1),
    "long, mixed lengths": Ingredient(long=1, training={"lengths": LENGTHS}),
    "steep slopes": Ingredient(steep=True),
    "steep slopes, nothing exempt": Ingredient(steep=True, architecture={"exempt_header": False}),
    "steep slopes, Muon": Ingredient(steep=True, training=MUON),
    "steep slopes, Muon, thrice as long": Ingredient(steep=True, training=MUON, long=3),
    "Mamba-2": Ingredient(recurrent=True),
}
"""Most change one thing; a comma stands between two."""


@dataclass(frozen=True, kw_only=True)
class PriorRecipe(Recipe):
    """Tunnels, encodings and training."""

    encodings: tuple[str, ...] = tuple(ENCODINGS)
    ssmax: bool = True
    """Whether every encoding is trained with SSMax, too."""
    tunnels: tuple[str, ...] = ("hmm", "bijection", "recall")
    ingredients: tuple[str, ...] = tuple(INGREDIENTS)
    states: int = 3
    length: int = 10
    layers: int = 3
    width: int = 64
    heads: int = 4
    alphabet: int = 16
    pairs: int = 4
    steps: int
    """On the hmm; the others have steps of their own."""
    bijection_steps: int = 0
    recall_steps: int = 0
    """At most: recall is found at some step, and whoever has found it need not go on."""
    longer: int = 1
    """Long trainings have so many times the steps."""
    batch_size: int = 64
    lr: float = 2e-3
    stretch: int = 10
    sequences: int = 500
    """Held-out sequences."""

    def names(self, tunnel: str) -> list[str]:
        """Encodings on a tunnel, with and without SSMax."""
        own = [name for name in self.encodings if tunnel == "hmm" or name != EXEMPT]
        return own + [name + SSMAX for name in own if self.ssmax]

    def tunnel(self, name: str) -> Tunnel:
        """What is trained on."""
        match name:
            case "hmm":
                return HMM(self.states, self.states, self.length)
            case "bijection":
                return Bijection(self.alphabet, self.length, replacement=True)
            case _:
                symbols = 2 * self.stretch * self.pairs
                return Recall(self.pairs, 3, self.pairs, symbols, symbols)

    def beyond(self, name: str) -> Tunnel:
        """What is asked: the same task, longer."""
        tunnel = self.tunnel(name).stretched(self.stretch)
        if isinstance(tunnel, Recall):
            return replace(tunnel, pairs=self.pairs * self.stretch)
        return tunnel

    def training(self, tunnel: str, encoding: str, seed: int) -> TunnelTraining:
        """Of one encoding on one tunnel."""
        steps = {"hmm": self.steps, "bijection": self.bijection_steps, "recall": self.recall_steps}
        config = self._config(steps[tunnel], seed)
        if tunnel == "recall":
            config = replace(config, target=FOUND)
        return TunnelTraining(self.tunnel(tunnel), self._architecture(tunnel, encoding), config)

    def ingredient(self, name: str, seed: int) -> TunnelTraining:
        """GGD alibi with exempt header on the hmm, with one thing changed, or two."""
        changed, tunnel = INGREDIENTS[name], self.tunnel("hmm")
        config = self._config(self.steps * max(1, changed.long * self.longer), seed)
        architecture = replace(self._architecture("hmm", EXEMPT), **changed.architecture)
        if changed.steep:
            options = {"slopes": steep_slopes(self.heads)}
            architecture = replace(architecture, prior="laplace", prior_options=options)
        chosen = _recurrent(self) if changed.recurrent else architecture
        return TunnelTraining(tunnel, chosen, replace(config, **changed.training))

    def fidelity(self, tunnel: str, training: TunnelTraining) -> Fidelity:
        """Inside the horizon that was trained on, and beyond it."""
        model, longer = training.model(), self.beyond(tunnel)
        horizon = max(training.config.lengths) * training.tunnel.horizon
        if longer.horizon != training.tunnel.horizon:
            return measure_fidelity(
                model, longer, sequences=self.sequences, horizon=round(horizon), batch_size=64
            )
        return measure_stretched(model, training.tunnel, longer, sequences=self.sequences)

    def _config(self, steps: int, seed: int) -> TrainConfig:
        return TrainConfig(
            steps=steps, batch_size=self.batch_size, lr=self.lr, seed=seed, threads=1
        )

    def _architecture(self, tunnel: str, encoding: str) -> Transformer:
        fields = ENCODINGS[encoding.removesuffix(SSMAX)]
        plain = Transformer(layers=self.layers, width=self.width, heads=self.heads)
        if encoding.removesuffix(SSMAX) == LEARNED:
            fields = {**fields, "max_positions": self.beyond(tunnel).positions}
        if encoding.endswith(SSMAX):
            # as published with a learned prior; a prior that is not learned stays what it is
            scope = "content+prior" if fields.get("prior") == "ggd" else "content"
            fields = {**fields, "ssmax": True, "ssmax_scope": scope}
        return replace(plain, **fields)


def steep_slopes(heads: int) -> list[float]:
    """From 4 to 1/2, equally far apart in logarithms.

    >>> steep_slopes(4)
    [4.0, 2.0, 1.0, 0.5]
    """
    return [2 ** (2 - 3 * head / max(heads - 1, 1)) for head in range(heads)]


@cache  # sizing takes a while, and every seed asks again
def _recurrent(recipe: PriorRecipe) -> Architecture:
    """Mamba-2 as large as the transformer."""
    tunnel = recipe.tunnel("hmm")
    budget = count_parameters(recipe.training("hmm", EXEMPT, 0).architecture, tunnel)
    return match_parameters(Mamba(layers=recipe.layers, width=recipe.width), tunnel, budget)
