"""What claims about tunnels share: how a model is trained, and its errors beyond the horizon."""

from collections.abc import Mapping
from typing import Any

from bayesattn.evals.fidelity import Fidelity, Part
from bayesattn.ledger.study import Recipe
from bayesattn.ledger.trained import mean
from bayesattn.ledger.typed import Stored
from bayesattn.models.architectures import Transformer
from bayesattn.training import TrainConfig

FOUND = 0.01
"""Bits: recall is found at some step and then at once; whoever has found it need not go on."""


class TunnelRecipe(Recipe):
    """A network, its training and its measurement."""

    width: int
    heads: int = 4
    steps: int
    batch_size: int = 64
    lr: float = 2e-3
    sequences: int = 1000
    """Held-out sequences."""

    def config(self, seed: int, steps: int | None = None, **changes: Any) -> TrainConfig:
        """On one thread, since sums over several differ with their number."""
        steps = self.steps if steps is None else steps
        settings: dict[str, Any] = {"batch_size": self.batch_size, "lr": self.lr, **changes}
        return TrainConfig(steps=steps, seed=seed, threads=1, **settings)

    def transformer(self, layers: int, **fields: Any) -> Transformer:
        return Transformer(layers=layers, width=self.width, heads=self.heads, **fields)


class Errors(Stored):
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


class Extrapolation(Stored):
    """Errors of one model inside and beyond the horizon that it was trained to."""

    inside: Errors
    beyond: Errors


Extrapolations = Mapping[int, Mapping[str, Extrapolation]]
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
