"""Architectures on equal terms: as many parameters, as many sequences, the same optimiser.

With equal parameters and equal tokens the number of multiplications in training is equal, too, to
the extent that a parameter is used once per token, which holds for all but the flattened MLP.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

from bayesattn.ledger.study import Recipe
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
from bayesattn.training import TrainConfig
from bayesattn.tunnels import HMM, Bijection, Recall, Tunnel

TRANSFORMER = "transformer"
FOUND = 0.01
"""Bits: recall is found at some step and then at once; whoever has found it need not go on."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """How near to Bayes one architecture comes on one task."""

    error: float
    """Of the entropy, bits."""
    kl: float
    accuracy: float
    uniform_error: float
    """Of the uniform predictor."""
    uniform_kl: float

    @property
    def share(self) -> float:
        """Of the uniform predictor's divergence that is removed."""
        return 1 - self.kl / self.uniform_kl


Scores = Mapping[str, Mapping[str, Score]]
"""By task and architecture."""


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
        """The task of a primitive."""
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
        """The same for every architecture but itself."""
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

    def scores(self, tasks: Sequence[str], names: Sequence[str], seed: int) -> Scores:
        """Of every architecture on every task."""
        return {
            task: {name: self._score(self.training(task, name, seed)) for name in names}
            for task in tasks
        }

    def _score(self, training: TunnelTraining) -> Score:
        part = training.fidelity(sequences=self.sequences).parts["inside"]
        return Score(
            error=mean(part, "mae_tok"),
            kl=mean(part, "kl"),
            accuracy=mean(part, "accuracy"),
            uniform_error=mean(part, "mae_tok", "uniform"),
            uniform_kl=mean(part, "kl", "uniform"),
        )

    def architecture(self, name: str, tunnel: Tunnel) -> Architecture:
        """One of `ARCHITECTURES`, as large as the transformer."""
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
