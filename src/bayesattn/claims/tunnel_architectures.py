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

from collections.abc import Callable, Mapping
from functools import cache
from itertools import product
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from bayesattn.claims.panels import draw_rows, panels
from bayesattn.claims.registry import register
from bayesattn.claims.tunnels import FOUND, TunnelRecipe
from bayesattn.evals.fidelity import Part
from bayesattn.ledger.study import Picture, Study, Tier, Value
from bayesattn.ledger.trained import TunnelTraining, mean
from bayesattn.ledger.typed import Stored
from bayesattn.models.architectures import LSTM, MLP, Architecture, Mamba, match_parameters
from bayesattn.models.architectures.matching import count_parameters
from bayesattn.priors.generalized_gaussian import Init
from bayesattn.tunnels import HMM, Bijection, Recall, Tunnel

TRANSFORMER = "transformer"
CONTEXTS = ("mlp flattened", "mlp mean", "mlp convolution")
BLIND = "mlp position"
OTHERS = ("mamba", "lstm", "mlp convolution", BLIND)
MANY = "binding of many"


class EqualRecipe(TunnelRecipe):
    """Tasks, the transformer that sets the budget, and the training of everyone."""

    alphabet: int
    states: int
    length: int
    pairs: int
    many: int = 16
    """Pairs of the task that a state of fixed size should fail."""
    layers: int
    init: Init = "mixed"
    """How the transformer's prior is initialised."""
    recall_steps: int
    """At most so many steps where something must be looked up, which takes longer to be found."""

    def tunnel(self, task: str) -> Tunnel:
        match task:
            case "accumulation":
                return Bijection(self.alphabet)
            case "lookup":
                return Bijection(self.alphabet, replacement=True)
            case "transport":
                return HMM(self.states, self.states, self.length)
            case _:
                pairs = self.many if task == MANY else self.pairs
                return Recall(pairs=pairs, filler=pairs, keys=4 * pairs, values=4 * pairs)

    def training(self, task: str, name: str, seed: int) -> TunnelTraining:
        tunnel = self.tunnel(task)
        config = self.config(seed)
        if task in ("binding", MANY, "lookup"):
            config = self.config(seed, self.recall_steps, target=FOUND)
        return TunnelTraining(tunnel, architecture(self, name, tunnel), config)


@cache  # sizing takes a while, and every seed asks again
def architecture(recipe: EqualRecipe, name: str, tunnel: Tunnel) -> Architecture:
    """As large as the transformer, whose header is exempt from the prior."""
    options = {"init": recipe.init}
    transformer = recipe.transformer(
        recipe.layers, prior="ggd", prior_options=options, exempt="header"
    )
    if name == TRANSFORMER:
        return transformer
    budget = count_parameters(transformer, tunnel)
    size: dict[str, Any] = {"layers": recipe.layers, "width": recipe.width}
    other: Architecture
    match name:
        case "mamba":
            other = Mamba(**size)
        case "lstm":
            other = LSTM(**size)
        case _:
            other = MLP(context=name.removeprefix("mlp "), **size)  # pyright: ignore[reportArgumentType]
    return match_parameters(other, tunnel, budget)


M = TypeVar("M")
S = TypeVar("S")


class EqualStudy(Study[EqualRecipe, M]):
    """Trains architectures of one size on the same tasks."""

    tasks: ClassVar[tuple[str, ...]]
    names: ClassVar[tuple[str, ...]]

    def trainings(self, tier: Tier, seed: int) -> Mapping[str, TunnelTraining]:
        recipe = self.recipes[tier]
        return {
            f"{task}: {name}": recipe.training(task, name, seed)
            for task, name in product(self.tasks, self.names)
        }

    def scores(self, tier: Tier, seed: int, score: Callable[[Part], S]) -> dict[str, dict[str, S]]:
        """Fidelity as one score, by task and architecture."""
        recipe = self.recipes[tier]
        found: dict[str, dict[str, S]] = {task: {} for task in self.tasks}
        for task, name in product(self.tasks, self.names):
            fidelity = recipe.training(task, name, seed).fidelity(sequences=recipe.sequences)
            found[task][name] = score(fidelity.parts["inside"])
        return found

    def draw_tasks(
        self,
        found: Mapping[int, Mapping[str, Mapping[str, S]]],
        value: Callable[[S], float],
    ) -> tuple[Any, list[Any]]:
        figure, axes = panels(len(self.tasks), (2 + 2.2 * len(self.tasks), 2.8), sharey=True)
        for panel, task in zip(axes, self.tasks, strict=True):
            own = [one[task] for one in found.values()]
            draw_rows(panel, {name: [value(one[name]) for one in own] for name in self.names})
            panel.set_title(task)
        return figure, axes


class Failure(Stored):
    """How far one architecture is from Bayes on one task, in bits."""

    error: float
    """Of the entropy."""
    kl: float
    uniform_error: float
    """Of the uniform predictor."""
    uniform_kl: float

    @classmethod
    def of(cls, part: Part) -> Self:
        return cls(
            error=mean(part, "mae_tok"),
            kl=mean(part, "kl"),
            uniform_error=mean(part, "mae_tok", "uniform"),
            uniform_kl=mean(part, "kl", "uniform"),
        )


LEARNT = 0.9
"""Share of the uniform predictor's KL that the transformer must remove: the premise."""
Failures = Mapping[str, Mapping[str, Failure]]
"""By task and architecture."""


@register("tunnel-mlp")
class TunnelMLP(EqualStudy[Failures]):
    """A transformer and four MLPs on bijections, with and without returning keys, and filters."""

    tasks = ("accumulation", "lookup", "transport")
    names = (TRANSFORMER, *CONTEXTS, BLIND)

    def measure(self, tier: Tier, seed: int) -> Failures:
        return self.scores(tier, seed, Failure.of)

    def values(self, tier: Tier, one: Failures) -> Mapping[str, Value]:
        return {
            "bijection": _blind(one["lookup"]),
            "filter": _blind(one["transport"]),
            "accumulation-in-context": _in_context(one["accumulation"]),
            "binding-in-context": _in_context(one["lookup"]),
            "transport-in-context": _in_context(one["transport"]),
        }

    def draw(self, tier: Tier, found: Mapping[int, Failures]) -> list[Picture]:
        figure, axes = self.draw_tasks(found, lambda one: one.kl)
        for panel, task in zip(axes, self.tasks, strict=True):
            uniform = [one[task][TRANSFORMER].uniform_kl for one in found.values()]
            panel.axvline(float(np.mean(uniform)), color="grey", ls=":")
            panel.set(xscale="log", xlabel="KL(Bayes ‖ model), bits (dotted: uniform)")
        caption = "Divergence of models of one size; each point is a seed."
        alt = "Divergences on a logarithmic axis, the uniform predictor as a dotted line."
        return [Picture("errors", figure, caption, alt)]


def _blind(task: Mapping[str, Failure]) -> Value:
    """The MLP without context, by the authors' measure."""
    transformer = task[TRANSFORMER]
    ratio = task[BLIND].error / transformer.error
    return Value(ratio, transformer.error, _learnt(transformer))


def _in_context(task: Mapping[str, Failure]) -> Value:
    """The best MLP with context."""
    transformer = task[TRANSFORMER]
    ratio = min(task[name].kl for name in CONTEXTS) / transformer.kl
    return Value(ratio, transformer.kl, _learnt(transformer))


def _learnt(transformer: Failure) -> bool:
    return transformer.kl <= (1 - LEARNT) * transformer.uniform_kl


class Primitive(Stored):
    """How much of one task one architecture can do."""

    share: float
    """Of the uniform predictor's divergence that is removed."""
    error: float
    """Of the entropy, bits."""
    accuracy: float

    @classmethod
    def of(cls, part: Part) -> Self:
        share = 1 - mean(part, "kl") / mean(part, "kl", "uniform")
        return cls(share=share, error=mean(part, "mae_tok"), accuracy=mean(part, "accuracy"))


Primitives = Mapping[str, Mapping[str, Primitive]]
"""By task and architecture."""


@register("tunnel-primitives")
class TunnelPrimitives(EqualStudy[Primitives]):
    """Five architectures on the tasks of three primitives, binding at two loads."""

    tasks = ("accumulation", "transport", "binding", MANY)
    names = (TRANSFORMER, *OTHERS)

    def measure(self, tier: Tier, seed: int) -> Primitives:
        return self.scores(tier, seed, Primitive.of)

    def values(self, tier: Tier, one: Primitives) -> Mapping[str, Value]:
        binding, many, transport = one["binding"], one[MANY], one["transport"]

        def error(name: str) -> Value:
            return Value(transport[name].error, transport[TRANSFORMER].error)

        own, other = many[TRANSFORMER].share, many["lstm"].share
        return {
            "transformer-binds": Value(binding[TRANSFORMER].share, binding[BLIND].share),
            "mamba-transports": error("mamba"),
            "lstm-does-not-transport": error("lstm"),
            "lstm-binds-fewer": Value(own - other, other, own >= LEARNT),
        }

    def draw(self, tier: Tier, found: Mapping[int, Primitives]) -> list[Picture]:
        figure, axes = self.draw_tasks(found, lambda one: one.share)
        for panel in axes:
            panel.set(xlabel="share of divergence removed", xlim=(-0.1, 1.05))
        caption = "Share of the uniform predictor's divergence removed; each point is a seed."
        alt = "Shares from 0 to 1 per task and architecture."
        return [Picture("primitives", figure, caption, alt)]
