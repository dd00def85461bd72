"""Trained models of studies. A study trains into a run, so it can be stopped and taken up again.

Runs are kept in `runs/` of the working directory (or `$BAYESATTN_RUNS`), named after a hash of all
that decides their result: studies that need the same model share it, and a changed recipe trains
anew.
"""

import hashlib
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bayesattn.evals.fidelity import Fidelity, Part, measure
from bayesattn.evals.lengths import stretch
from bayesattn.models.architectures import Architecture, Predictor, build
from bayesattn.models.open import open_tunnel
from bayesattn.runs import Run
from bayesattn.runs.errors import DamagedCheckpointError, DamagedRunError
from bayesattn.training import TrainConfig, train_tunnel
from bayesattn.training.tunnel import run_config
from bayesattn.tunnels import Tunnel


def runs_folder() -> Path:
    """Where the runs of studies are kept."""
    return Path(os.environ.get("BAYESATTN_RUNS", "runs"))


def run_name(kind: str, config: dict[str, Any]) -> str:
    """The same for the same training, another one for any other."""
    digest = hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:12]
    return f"{kind}-{digest}"


def sound(folder: Path, train: Callable[[], Run]) -> Run:
    """The run that `train` finds or makes in `folder`; a damaged one is set aside and made anew."""
    try:
        run = train()
        last = (run.finished or {}).get("step")
        if last not in run.steps():
            raise DamagedRunError(f"The run in {folder} has lost the checkpoint of its last step.")
        run.checkpoint(last)
        return run
    except (DamagedRunError, DamagedCheckpointError) as error:
        number = 1
        while (aside := folder.with_name(f"{folder.name}.aside-{number}")).exists():
            number += 1
        folder.rename(aside)
        print(f"{error} It was set aside as {aside.name} and is trained again.", file=sys.stderr)
        return train()


@dataclass(frozen=True)
class TunnelTraining:
    """What decides a model of a tunnel."""

    tunnel: Tunnel
    architecture: Architecture
    config: TrainConfig

    @property
    def folder(self) -> Path:
        """Of its run."""
        decisive = run_config(self.tunnel, self.architecture, self.config)
        return runs_folder() / run_name(f"{self.tunnel.name}-{self.architecture.name}", decisive)

    def train(self) -> Run:
        """Its run: found if there is one, else trained now."""
        parts = (self.tunnel, self.architecture, self.config)
        return sound(self.folder, lambda: train_tunnel(*parts, self.folder, progress=False))

    def model(self) -> Predictor:
        """The trained model."""
        return open_tunnel(self.train())[0]

    def fidelity(self, *, sequences: int, length: str = "1x") -> Fidelity:
        """Of the trained model, to a length such as "10x" times the trained one."""
        longer = stretch(self.tunnel, length)
        return measure(self.model(), longer, sequences=sequences, horizon=self.tunnel.horizon)

    def untrained_mae(self, *, sequences: int) -> float:
        """Entropy error, bits, of the same model before any training."""
        model = build(self.architecture, self.tunnel, self.config.seed)
        found = measure(model, self.tunnel, sequences=sequences)
        return mean(found.parts["inside"], "mae_tok")


def mean(part: Part, metric: str, predictor: str = "model") -> float:
    """One metric of one predictor."""
    return part.estimates[predictor][metric].value
