"""Training on a tunnel: the model learns the posterior, or outcomes sampled from it."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Generator, Tensor, nn

from bayesattn.bits import entropy_errors, kl_divergence, log_probabilities
from bayesattn.errors import TrainingError
from bayesattn.models.architectures import Architecture, Predictor, build, make_architecture
from bayesattn.runs import Run
from bayesattn.training.config import TrainConfig
from bayesattn.training.loop import train_run
from bayesattn.training.schedule import WATCH_SEED
from bayesattn.tunnels import Batch, Tunnel, make_tunnel

WATCHED = 512
"""Number of sequences in an evaluation during training."""


class TunnelTask:
    """Cross-entropy at the scored positions; entropy error and divergence on held-out sequences."""

    goal = "mae"
    tokens = None

    def __init__(
        self,
        tunnel: Tunnel,
        labels: Literal["posterior", "sampled"],
        lengths: Sequence[float] = (1.0,),
    ) -> None:
        self.tunnel = tunnel
        self.labels = labels
        self._tunnels = [_stretched(tunnel, length) for length in lengths]

    def batch(self, generator: Generator, batch_size: int, step: int) -> Batch:
        """Fresh sequences; the step determines only the length."""
        return self._tunnels[step % len(self._tunnels)].sample(batch_size, generator)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """-Σ_y p(y) ln q(y), mean over sequences and steps; p is the posterior or the label."""
        logits = model(batch.inputs, batch.scored)
        if self.labels == "sampled":
            return nn.functional.cross_entropy(logits.flatten(0, 1), batch.labels.flatten())
        return -(batch.posterior.to(logits.dtype) * logits.log_softmax(-1)).sum(-1).mean()

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """Bits: "mae", the mean of |H(model) - H(Bayes)| per token, and "kl", KL(Bayes ‖ model)."""
        device = next(model.parameters()).device
        error, divergence = [], []
        for batch in self._watched:
            inputs, scored = batch.inputs.to(device), batch.scored.to(device)
            log_probs = log_probabilities(model(inputs, scored).cpu())
            error.append(entropy_errors(log_probs, batch.posterior).abs())
            divergence.append(kl_divergence(batch.posterior, log_probs))
        return {"mae": torch.cat(error).mean().item(), "kl": torch.cat(divergence).mean().item()}

    @cached_property
    def _watched(self) -> list[Batch]:
        generator = Generator().manual_seed(WATCH_SEED)
        return [self.tunnel.sample(WATCHED // 4, generator) for _ in range(4)]


def train_tunnel(
    tunnel: Tunnel,
    architecture: Architecture,
    config: TrainConfig,
    folder: Path | str,
    *,
    progress: bool = True,
    command: str | None = None,
) -> Run:
    """Train `architecture` on `tunnel` in the run `folder`: create, continue or only open it.

    A folder with another config is refused; `command` is the typed command, for the record.

    Raises:
        Interrupted: after Ctrl-C; everything is saved.
    """
    parts = {"tunnel": tunnel, "architecture": architecture, "training": config}
    return train_run(parts, lambda: make(tunnel, architecture, config), folder, progress, command)


def make(
    tunnel: Tunnel, architecture: Architecture, config: TrainConfig
) -> tuple[TunnelTask, Predictor, dict[str, Any]]:
    """The task and the model; its position table has rows for the longest training sequence."""
    try:
        model = build(architecture, _stretched(tunnel, max(config.lengths)), config.seed)
    except ValueError as error:  # refuse wrong combinations before a folder is made
        raise TrainingError(str(error)) from error
    return TunnelTask(tunnel, config.labels, config.lengths), model, {}


def parse_config(run: Run) -> tuple[Tunnel, Architecture, TrainConfig]:
    with run.reading("tunnel"):
        parts = run.config["tunnel"], run.config["architecture"], run.config["training"]
        return make_tunnel(**parts[0]), make_architecture(**parts[1]), TrainConfig(**parts[2])


def _stretched(tunnel: Tunnel, length: float) -> Tunnel:
    return tunnel if length == 1 else tunnel.stretched(length)
