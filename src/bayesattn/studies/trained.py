"""Trained models of studies. A study trains into a run, so it can be stopped and taken up again.

Runs are kept in `runs/` of the working directory (or `$BAYESATTN_RUNS`), named after a hash of all
that decides their result: studies that need the same model share it, and a changed recipe trains
anew.
"""

import hashlib
import json
import os
from pathlib import Path

from bayesattn.evals.fidelity import Fidelity, Part, measure
from bayesattn.evals.lengths import stretch
from bayesattn.models.architectures import Architecture, Predictor, build
from bayesattn.training import TrainConfig, load_predictor, train_tunnel
from bayesattn.training.tunnel import run_config
from bayesattn.tunnels import Tunnel


def runs_folder() -> Path:
    """Where the runs of studies are kept."""
    return Path(os.environ.get("BAYESATTN_RUNS", "runs"))


def run_name(tunnel: Tunnel, architecture: Architecture, config: TrainConfig) -> str:
    """The same for the same training, another one for any other."""
    decisive = json.dumps(run_config(tunnel, architecture, config), sort_keys=True)
    digest = hashlib.sha256(decisive.encode()).hexdigest()[:12]
    return f"{tunnel.name}-{architecture.name}-{digest}"


def trained(tunnel: Tunnel, architecture: Architecture, config: TrainConfig) -> Predictor:
    """The trained model: from its run if there is one, else trained now."""
    folder = runs_folder() / run_name(tunnel, architecture, config)
    return load_predictor(train_tunnel(tunnel, architecture, config, folder, progress=False))[0]


def fidelity(
    tunnel: Tunnel,
    architecture: Architecture,
    config: TrainConfig,
    *,
    sequences: int,
    length: str = "1x",
) -> Fidelity:
    """Fidelity of the trained model, to a length such as "10x" times the trained one."""
    model = trained(tunnel, architecture, config)
    longer = stretch(tunnel, length)
    return measure(model, longer, sequences=sequences, horizon=tunnel.horizon)


def untrained_mae(
    tunnel: Tunnel, architecture: Architecture, seed: int, *, sequences: int
) -> float:
    """Entropy error, bits, of the same model before any training."""
    found = measure(build(architecture, tunnel, seed), tunnel, sequences=sequences)
    return mean(found.parts["inside"], "mae_tok")


def mean(part: Part, metric: str, predictor: str = "model") -> float:
    """One metric of one predictor."""
    return part.estimates[predictor][metric].value
