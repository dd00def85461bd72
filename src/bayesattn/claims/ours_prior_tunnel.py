"""ours-prior-tunnel: which way to know positions keeps inference exact beyond the horizon?

    KL(Bayes ‖ model), in bits, on sequences up to ten times as long as those trained on

of transformers under nine positional priors and encodings, with and without SSMax, on three tasks
with an exact posterior, trained at one horizon and asked far beyond it:

    hmm         ten times as many observations
    bijection   ten times as many pairs, keys drawn with replacement; the vocabulary is fixed, so
                the alphabet is larger than a trained sequence can use up, and longer sequences
                show more distinct keys than any in training
    recall      ten times the filler and ten times the pairs, of keys and values that are all known
                from training, only never so many at once

Learned absolute positions have rows up to the longest sequence asked for, and those beyond the
horizon are never trained.

Judged is the learned prior: GGD with alibi init, whose header is exempt where there is one, and
with sharp init on recall, which no flatter prior finds.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from bayesattn.claims.panels import draw_rows, panels
from bayesattn.claims.registry import register
from bayesattn.claims.tunnels import (
    FOUND,
    Errors,
    Extrapolation,
    Extrapolations,
    TunnelRecipe,
    extrapolation,
)
from bayesattn.evals.fidelity import Fidelity, measure_stretched
from bayesattn.evals.fidelity import measure as measure_fidelity
from bayesattn.ledger.study import PartedStudy, Picture, Tier, Value
from bayesattn.ledger.trained import TunnelTraining
from bayesattn.models.architectures import Transformer
from bayesattn.tunnels import HMM, Bijection, Recall, Tunnel

LEARNT = 0.9
"""Share of the uniform predictor's KL that every compared arm must remove inside: the premise."""
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
    EXEMPT: {"prior": "ggd", "prior_options": LOCAL, "exempt": "header"},
    SHARP: {"prior": "ggd", "prior_options": {"init": "sharp"}, "exempt": "header"},
}
"""Fields of the transformer. Only the hmm has a header that could be exempt."""
RIVALS = (LEARNED, ROPE)
SSMAX = " + SSMax"


class PriorRecipe(TunnelRecipe):
    """Tunnels, encodings and training."""

    encodings: tuple[str, ...] = tuple(ENCODINGS)
    ssmax: bool = True
    """Whether every encoding is trained with SSMax, too."""
    tunnels: tuple[str, ...] = ("hmm", "bijection", "recall")
    states: int = 3
    length: int = 10
    layers: int = 3
    width: int = 64
    alphabet: int = 16
    """Of the bijection."""
    pairs: int = 4
    steps: int
    """On the hmm; the others have steps of their own."""
    bijection_steps: int = 0
    recall_steps: int = 0
    """At most: recall is found at some step, and whoever has found it need not go on."""
    stretch: int = 10
    sequences: int = 500

    def names(self, tunnel: str) -> list[str]:
        """Encodings on a tunnel, with and without SSMax."""
        own = [name for name in self.encodings if tunnel == "hmm" or name != EXEMPT]
        return own + [name + SSMAX for name in own if self.ssmax]

    def tunnel(self, name: str) -> Tunnel:
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
        steps = {"hmm": self.steps, "bijection": self.bijection_steps, "recall": self.recall_steps}
        target = FOUND if tunnel == "recall" else None
        config = self.config(seed, steps[tunnel], target=target)
        return TunnelTraining(self.tunnel(tunnel), self._architecture(tunnel, encoding), config)

    def trainings(self, seed: int) -> dict[str, TunnelTraining]:
        return {
            f"{tunnel}: {name}": self.training(tunnel, name, seed)
            for tunnel in self.tunnels
            for name in self.names(tunnel)
        }

    def fidelity(self, tunnel: str, training: TunnelTraining) -> Fidelity:
        """Inside the horizon that was trained on, and beyond it."""
        model, longer = training.model(), self.beyond(tunnel)
        horizon = training.tunnel.horizon
        if longer.horizon != horizon:
            return measure_fidelity(
                model, longer, sequences=self.sequences, horizon=horizon, batch_size=64
            )
        return measure_stretched(model, training.tunnel, longer, sequences=self.sequences)

    def _architecture(self, tunnel: str, encoding: str) -> Transformer:
        fields = ENCODINGS[encoding.removesuffix(SSMAX)]
        if encoding.removesuffix(SSMAX) == LEARNED:
            fields = {**fields, "max_position_embeddings": self.beyond(tunnel).positions}
        if encoding.endswith(SSMAX):
            # as published with a learned prior; a prior that is not learned stays what it is
            scope = "content+prior" if fields.get("prior") == "ggd" else "content"
            fields = {**fields, "ssmax": True, "ssmax_scope": scope}
        return self.transformer(self.layers, **fields)


@register("ours-prior-tunnel")
class OursPriorTunnel(PartedStudy[PriorRecipe, Extrapolation]):
    """Trains one transformer under many priors and follows it past the horizon."""

    def measure_part(self, tier: Tier, seed: int, part: str) -> Extrapolation:
        recipe, tunnel = self.recipes[tier], part.partition(":")[0]
        return extrapolation(recipe.fidelity(tunnel, recipe.trainings(seed)[part]))

    def values(self, tier: Tier, one: Mapping[str, Extrapolation]) -> Mapping[str, Value]:
        def ahead(tunnel: str, prior: str) -> Value:
            own = one[f"{tunnel}: {prior}"]
            rivals = [one[f"{tunnel}: {name}"] for name in RIVALS]
            nearest = min(rival.beyond.kl for rival in rivals)
            learnt = all(_learnt(arm) for arm in (own, *rivals))
            return Value(nearest / own.beyond.kl, nearest, learnt)

        kept = one[f"recall: {SHARP}"]
        return {
            "filter": ahead("hmm", EXEMPT),
            "bijection": ahead("bijection", GGD),
            "recall": Value(_removed(kept.beyond), _removed(kept.inside), _learnt(kept)),
        }

    def draw(self, tier: Tier, found: Extrapolations) -> list[Picture]:
        recipe = self.recipes[tier]
        most = max(len(recipe.names(tunnel)) for tunnel in recipe.tunnels)
        size = (3.2 + 2.6 * len(recipe.tunnels), 1.2 + 0.24 * most)
        figure, axes = panels(len(recipe.tunnels), size)
        for panel, tunnel in zip(axes, recipe.tunnels, strict=True):
            own = {
                name: [one[f"{tunnel}: {name}"] for one in found.values()]
                for name in recipe.names(tunnel)
            }
            uniform = [_known(one.beyond.uniform_kl) for one in next(iter(own.values()))]
            panel.axvline(float(np.mean(uniform)), color="grey", ls=":")
            inside = {name: [one.inside.kl for one in seeds] for name, seeds in own.items()}
            draw_rows(panel, inside, marker="s", color="C1", ms=4)
            beyond = {name: [one.beyond.kl for one in seeds] for name, seeds in own.items()}
            draw_rows(panel, beyond, color="C0", ms=4)
            panel.set(title=tunnel, xlabel="KL(Bayes ‖ model), bits", xscale="log")
            panel.tick_params("y", labelsize=7)
        caption = (
            "Divergence inside (squares) and beyond the horizon (circles), to ten times the "
            "length; dotted: the uniform predictor beyond; a point is a seed."
        )
        alt = "One panel per tunnel, one row per prior or encoding, points on a logarithmic axis."
        return [Picture("matrix", figure, caption, alt)]


def _known(uniform_kl: float | None) -> float:
    assert uniform_kl is not None, "this claim has always kept it"
    return uniform_kl


def _removed(errors: Errors) -> float:
    """Share of the uniform predictor's KL."""
    return 1 - errors.kl / _known(errors.uniform_kl)


def _learnt(one: Extrapolation) -> bool:
    return _removed(one.inside) >= LEARNT
