"""tunnel-mlp and tunnel-primitives: what can architectures infer on equal terms?

Equal terms are as many parameters (within 2%), as many sequences, the same optimiser. With equal
parameters and equal tokens the number of multiplications in training is equal, too, to the extent
that a parameter is used once per token, which holds for all but the flattened MLP.

tunnel-mlp: do MLPs of the same size fail where a transformer succeeds? An MLP that sees one
position only cannot infer anything from the context; that it equals the uniform predictor says
nothing about attention. So three more see the context: all embeddings side by side, their running
mean, and a stack of causal convolutions.

tunnel-primitives: which architecture can accumulate, transport and bind?

    share = 1 - KL(Bayes ‖ model) / KL(Bayes ‖ uniform)

of the divergence that the uniform predictor leaves, on three tasks: bijections (accumulation of
evidence), hidden Markov models (transport of belief) and recall (random-access binding). Unlike an
entropy error the share rewards only the right distribution; it is 1 for Bayes and 0 for uniform.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np

from bayesattn.claims.panels import draw_rows, panels
from bayesattn.claims.registry import register
from bayesattn.evals.fidelity import Part
from bayesattn.ledger.study import Picture, Recipe, Study, Tier, Verdict
from bayesattn.ledger.trained import TunnelTraining, mean
from bayesattn.models.architectures import (
    LSTM,
    MLP,
    Architecture,
    Mamba,
    Transformer,
    match_parameters,
)
from bayesattn.models.architectures.matching import count_parameters
from bayesattn.priors.generalized_gaussian import Init
from bayesattn.stats import judge_all, judge_below, judge_effect
from bayesattn.training import TrainConfig
from bayesattn.tunnels import HMM, Bijection, Recall, Tunnel

TRANSFORMER = "transformer"
CONTEXTS = ("mlp flattened", "mlp mean", "mlp convolution")
BLIND = "mlp position"
OTHERS = ("mamba", "lstm", "mlp convolution", BLIND)
TASKS = ("accumulation", "transport", "binding")
INFERENCE = TASKS[:2]
FOUND = 0.01
"""Bits: recall is found at some step and then at once; whoever has found it need not go on."""
FACTOR = 10.0
"""An MLP fails if it is off by so many times the transformer's error."""
SHARE = 0.9
"""An architecture has a primitive if it removes so much of the divergence."""


@dataclass(frozen=True, kw_only=True)
class EqualRecipe(Recipe):
    """Tasks, the transformer that sets the budget, and the training of everyone."""

    alphabet: int
    states: int
    length: int
    pairs: int
    layers: int
    width: int
    heads: int = 4
    init: Init = "mixed"
    """How the transformer's prior begins."""
    steps: int
    recall_steps: int
    """At most so many steps on recall, which takes longer to be found."""
    batch_size: int = 64
    lr: float = 2e-3
    sequences: int = 1000
    """Held-out sequences."""

    def tunnel(self, task: str) -> Tunnel:
        match task:
            case "accumulation":
                return Bijection(self.alphabet)
            case "transport":
                return HMM(self.states, self.states, self.length)
            case _:
                return Recall(
                    pairs=self.pairs, filler=self.pairs, keys=4 * self.pairs, values=4 * self.pairs
                )

    def training(self, task: str, name: str, seed: int) -> TunnelTraining:
        config = TrainConfig(
            steps=self.recall_steps if task == "binding" else self.steps,
            batch_size=self.batch_size,
            lr=self.lr,
            seed=seed,
            target=FOUND if task == "binding" else None,
            threads=1,
        )
        tunnel = self.tunnel(task)
        return TunnelTraining(tunnel, self.architecture(name, tunnel), config)

    def trainings(
        self, tasks: Sequence[str], names: Sequence[str], seed: int
    ) -> dict[str, TunnelTraining]:
        """Every architecture on every task, by "task: name"."""
        return {
            f"{task}: {name}": self.training(task, name, seed)
            for task, name in product(tasks, names)
        }

    def inside(
        self, tasks: Sequence[str], names: Sequence[str], seed: int
    ) -> dict[str, dict[str, Part]]:
        """Fidelity of every architecture on every task."""
        return {
            task: {
                name: self.training(task, name, seed)
                .fidelity(sequences=self.sequences)
                .parts["inside"]
                for name in names
            }
            for task in tasks
        }

    def architecture(self, name: str, tunnel: Tunnel) -> Architecture:
        """As large as the transformer."""
        return _architecture(self, name, tunnel)


@cache  # sizing takes a while, and every seed asks again
def _architecture(recipe: EqualRecipe, name: str, tunnel: Tunnel) -> Architecture:
    transformer = Transformer(
        layers=recipe.layers,
        width=recipe.width,
        heads=recipe.heads,
        prior="ggd",
        prior_options={"init": recipe.init},
        exempt_header=True,
    )
    if name == TRANSFORMER:
        return transformer
    budget = count_parameters(transformer, tunnel)
    plain: dict[str, Architecture] = {
        "mamba": Mamba(layers=recipe.layers, width=recipe.width),
        "lstm": LSTM(layers=recipe.layers, width=recipe.width),
    }
    if name in plain:
        return match_parameters(plain[name], tunnel, budget)
    context = name.removeprefix("mlp ")
    mlp = MLP(layers=recipe.layers, width=recipe.width, context=context)  # pyright: ignore[reportArgumentType]
    return match_parameters(mlp, tunnel, budget)


@dataclass(frozen=True, kw_only=True)
class Failure:
    """How far one architecture is from Bayes on one task, in bits."""

    error: float
    """Of the entropy."""
    kl: float
    uniform_error: float
    """Of the uniform predictor."""


Failures = Mapping[str, Mapping[str, Failure]]
"""By task and architecture."""


@register("tunnel-mlp")
class TunnelMLP(Study[EqualRecipe, Failures]):
    """Trains a transformer and four MLPs of its size on bijections and hidden Markov models."""

    names = (TRANSFORMER, *CONTEXTS, BLIND)

    def trainings(self, tier: Tier, seed: int) -> Mapping[str, TunnelTraining]:
        return self.recipes[tier].trainings(INFERENCE, self.names, seed)

    def measure(self, tier: Tier, seed: int) -> Failures:
        return {
            task: {
                name: Failure(
                    error=mean(part, "mae_tok"),
                    kl=mean(part, "kl"),
                    uniform_error=mean(part, "mae_tok", "uniform"),
                )
                for name, part in parts.items()
            }
            for task, parts in self.recipes[tier].inside(INFERENCE, self.names, seed).items()
        }

    def judge(self, tier: Tier, found: Mapping[int, Failures]) -> Verdict:
        """The MLP that comes nearest to the transformer decides."""
        ratios = {
            f"{name}, {task}": [
                one[task][name].error / one[task][TRANSFORMER].error for one in found.values()
            ]
            for task, name in product(INFERENCE, CONTEXTS)
        }
        nearest = sorted(ratios, key=lambda name: sum(ratios[name]))
        judgement = judge_all(
            {name: judge_effect(ratios[name], minimum=FACTOR) for name in nearest}
        )
        blind = [one[task][BLIND] for one in found.values() for task in INFERENCE]
        off = max(abs(own.error - own.uniform_error) for own in blind)
        reason = (
            f"{judgement.reason} The MLP without context is within {off:.2g} bits of the "
            "uniform predictor."
        )
        return self.verdict(
            judgement._replace(reason=reason),
            tier=tier,
            seeds=tuple(found),
            unit="times the transformer's error",
            null=1.0,
        )

    def draw(self, tier: Tier, found: Mapping[int, Failures]) -> list[Picture]:
        figure, axes = panels(len(INFERENCE), (8, 2.8), sharey=True)
        for panel, task in zip(axes, INFERENCE, strict=True):
            own = [one[task] for one in found.values()]
            draw_rows(panel, {name: [one[name].error for one in own] for name in self.names})
            uniform = float(np.mean([one[TRANSFORMER].uniform_error for one in own]))
            panel.axvline(uniform, color="grey", ls=":")
            panel.set(xscale="log", title=task, xlabel="entropy error, bits (dotted: uniform)")
        caption = "Entropy error of models of one size; each point is a seed."
        alt = "Errors on a logarithmic axis, the uniform predictor as a dotted line."
        return [Picture("errors", figure, caption, alt)]


@dataclass(frozen=True, kw_only=True)
class Primitive:
    """How much of one task one architecture can do."""

    share: float
    """Of the uniform predictor's divergence that is removed."""
    error: float
    """Of the entropy, bits."""
    accuracy: float


Primitives = Mapping[str, Mapping[str, Primitive]]
"""By task and architecture."""


@register("tunnel-primitives")
class TunnelPrimitives(Study[EqualRecipe, Primitives]):
    """Trains five architectures of one size on the tasks of three primitives."""

    names = (TRANSFORMER, *OTHERS)

    def trainings(self, tier: Tier, seed: int) -> Mapping[str, TunnelTraining]:
        return self.recipes[tier].trainings(TASKS, self.names, seed)

    def measure(self, tier: Tier, seed: int) -> Primitives:
        return {
            task: {
                name: Primitive(
                    share=1 - mean(part, "kl") / mean(part, "kl", "uniform"),
                    error=mean(part, "mae_tok"),
                    accuracy=mean(part, "accuracy"),
                )
                for name, part in parts.items()
            }
            for task, parts in self.recipes[tier].inside(TASKS, self.names, seed).items()
        }

    def judge(self, tier: Tier, found: Mapping[int, Primitives]) -> Verdict:
        """The transformer's weakest primitive, then the others' weakest."""
        shares = {
            name: {task: [one[task][name].share for one in found.values()] for task in TASKS}
            for name in self.names
        }
        parts = {}
        for name, own in shares.items():
            task = min(TASKS, key=lambda task: sum(own[task]))
            if name == TRANSFORMER:
                parts[f"{name}, {task}"] = judge_effect(own[task], minimum=SHARE)
            else:
                parts[f"{name} lacks {task}"] = judge_below(own[task], limit=SHARE)
        judgement = judge_all(parts)
        values = [part.value for part in parts.values()]
        decides = self.names[values.index(judgement.value)]
        count = ", ".join(
            f"{name} {sum(np.mean(values) >= SHARE for values in own.values())}"
            for name, own in shares.items()
        )
        return self.verdict(
            judgement._replace(reason=f"{judgement.reason} Primitives by the mean: {count}."),
            tier=tier,
            seeds=tuple(found),
            unit=f"share of the weakest primitive of {decides}",
            null=0.0,
        )

    def draw(self, tier: Tier, found: Mapping[int, Primitives]) -> list[Picture]:
        figure, axes = panels(len(TASKS), (8, 2.8), sharey=True)
        for panel, task in zip(axes, TASKS, strict=True):
            own = [one[task] for one in found.values()]
            draw_rows(panel, {name: [one[name].share for one in own] for name in self.names})
            panel.axvline(SHARE, color="grey", ls=":")
            panel.set(title=task, xlabel="share of divergence removed", xlim=(-0.1, 1.05))
        caption = "Share of the uniform predictor's divergence removed; each point is a seed."
        alt = "Shares from 0 to 1 per task and architecture, the threshold as a dotted line."
        return [Picture("primitives", figure, caption, alt)]
