"""Trained models of claims. Each training is a run, so it can be stopped and continued.

Runs are in `runs/` of the working directory (or `$BAYESATTN_RUNS`). Their names have a hash of all
settings that determine their result, so claims share equal models, and a changed recipe trains a
new one.
"""

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from bayesattn.checks import changed_fields
from bayesattn.errors import BusyRunError, DamagedCheckpointError, DamagedRunError, UserError
from bayesattn.evals.fidelity import Fidelity, Part, measure
from bayesattn.evals.lengths import stretch
from bayesattn.files import aside
from bayesattn.models.architectures import Architecture, Predictor, build, count_parameters
from bayesattn.models.cost import cost
from bayesattn.models.language_config import LanguageConfig
from bayesattn.models.open import open_tunnel
from bayesattn.runs import Run
from bayesattn.system import free_memory
from bayesattn.training import TrainConfig, language, train_tunnel, tunnel
from bayesattn.training.language import train_language
from bayesattn.tunnels import Tunnel

MOST_DAYS = 3.0
"""Longest work of this machine; longer work is refused."""
SPEED = 2e10
"""Rough number of operations per second of small trainings on one core."""
GPU_SPEED = 5e13
"""Operations per second of a GPU; a guess."""
DAY = 86_400
WAIT = 2.0
"""Seconds between two checks of a run that another process trains."""
DIGITS = 12
"""Number of digits of the hash in a run's name."""


class Demand(NamedTuple):
    """Operations and memory of a training, by the formulas of `models.cost`."""

    operations: float
    bytes: int


@dataclass(frozen=True)
class TunnelTraining:
    """All settings that determine a model of a tunnel."""

    tunnel: Tunnel
    architecture: Architecture
    config: TrainConfig

    @property
    def kind(self) -> str:
        """Beginning of the folder's name."""
        return f"{self.tunnel.name}-{self.architecture.name}"

    @property
    def folder(self) -> Path:
        return keyed_folder(self.kind, self.tunnel, self.architecture, self.config)

    def train(self) -> Run:
        """Its run: found if there is one, else trained now."""
        parts = (self.tunnel, self.architecture, self.config)
        return _undamaged(self.folder, lambda: train_tunnel(*parts, self.folder, progress=False))

    def demand(self) -> Demand:
        """An estimate with every parameter used once per token, for any architecture."""
        weights = count_parameters(self.architecture, self.tunnel)
        tokens = self.config.steps * self.config.batch_size * self.tunnel.positions
        return Demand(6.0 * weights * tokens, 16 * weights)

    def model(self) -> Predictor:
        return open_tunnel(self.train())[0]

    def fidelity(self, *, sequences: int, length: str = "1x") -> Fidelity:
        """Fidelity of the trained model, up to a length such as "10x" the training length."""
        longer = stretch(self.tunnel, length)
        return measure(self.model(), longer, sequences=sequences, horizon=self.tunnel.horizon)

    def untrained_mae(self, *, sequences: int) -> float:
        """Entropy error in bits of the same model before training."""
        model = build(self.architecture, self.tunnel, self.config.seed)
        found = measure(model, self.tunnel, sequences=sequences)
        return mean(found.parts["inside"], "mae_tok")


@dataclass(frozen=True)
class LanguageTraining:
    """All settings that determine a language model."""

    language: LanguageConfig
    config: TrainConfig

    @property
    def folder(self) -> Path:
        return keyed_folder("language", self.language, self.config)

    def train(self) -> Run:
        """Its run: found if there is one, else trained now."""
        parts = (self.language, self.config, self.folder)
        return _undamaged(self.folder, lambda: train_language(*parts, progress=False))

    def demand(self) -> Demand:
        model, config = self.language.model_config(), self.config
        whole, piece = (
            cost(model, self.language.length, size, config.precision)
            for size in (config.batch_size, config.batch_size // config.accumulate)
        )
        return Demand(whole.training * config.steps, piece.memory)


Training = TunnelTraining | LanguageTraining
"""A training that a claim uses; equal ones are done once."""


def mean(part: Part, metric: str, predictor: str = "model") -> float:
    return part.estimates[predictor][metric].value


def runs_folder() -> Path:
    return Path(os.environ.get("BAYESATTN_RUNS", "runs"))


def require_possible(trainings: Iterable[Training], workers: int) -> None:
    """Refuse trainings that need more memory than is free, or that would take days."""
    demands = {training.folder.name: training.demand() for training in trainings}
    if not demands:
        return
    gpu = torch.cuda.is_available()
    free = free_memory("cuda" if gpu else "cpu")
    name, largest = max(demands.items(), key=lambda item: item[1].bytes)
    if largest.bytes > free:
        raise UserError(
            f"The training {name} needs about {largest.bytes / 2**30:.0f} GiB and "
            f"{free / 2**30:.0f} GiB are free: choose a smaller tier, or a larger machine "
            "(docs/scaling.md)."
        )
    speed = GPU_SPEED if gpu else SPEED * workers
    days = sum(one.operations for one in demands.values()) / speed / DAY
    if days > MOST_DAYS:
        raise UserError(
            f"These {len(demands)} trainings would take about {days:,.0f} days here: name fewer "
            "claims, choose a smaller tier, or run them with --on ray (docs/scaling.md)."
        )


def keyed_folder(kind: str, *parts: Any) -> Path:
    """Folder of a run, with a hash of its settings; `kind` makes the name readable."""
    decisive = json.dumps([changed_fields(part) for part in parts], sort_keys=True)
    return runs_folder() / f"{kind}-{hashlib.sha256(decisive.encode()).hexdigest()[:DIGITS]}"


def rename_older_runs() -> None:
    """Rename runs of older versions, whose hashes had other names of settings."""
    for config in runs_folder().glob("**/*-" + DIGITS * "[0-9a-f]" + "/config.json"):
        folder = config.parent
        try:
            run = Run.open(folder)
            if "language" in run.config:
                training: Training = LanguageTraining(*language.parse_config(run))
            else:
                training = TunnelTraining(*tunnel.parse_config(run))
        except UserError:
            continue  # damaged, or of an unknown version: keep its name
        named = folder.with_name(folder.name[:-DIGITS] + training.folder.name[-DIGITS:])
        if not named.exists():
            folder.rename(named)


def _waiting(train: Callable[[], Run]) -> Run:
    """Variants that share a model share its run: the second waits for the first."""
    while True:
        try:
            return train()
        except BusyRunError:
            time.sleep(WAIT)


def _undamaged(folder: Path, train: Callable[[], Run]) -> Run:
    """The run that `train` opens or makes in `folder`; a damaged one is set aside and repeated."""
    try:
        run = _waiting(train)
        last = (run.finished or {}).get("step")
        if last not in run.steps():
            raise DamagedRunError(f"The run in {folder} has lost the checkpoint of its last step.")
        run.checkpoint(last)
        return run
    except (DamagedRunError, DamagedCheckpointError) as error:
        kept = aside(folder)
        print(f"{error} It was set aside as {kept.name} and is trained again.", file=sys.stderr)
        return train()
