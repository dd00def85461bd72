"""Put a finished run into the zoo: `python -m bayesattn.evals.shipping RUN NAME [LENGTH]`."""

import shlex
import sys
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, cast

from bayesattn.evals.fidelity import Fidelity
from bayesattn.evals.lengths import measure_stretched, stretch
from bayesattn.models.architectures import Architecture
from bayesattn.training import Run, TrainConfig, load_predictor
from bayesattn.training.checkpoint import save_checkpoint
from bayesattn.training.files import write_json
from bayesattn.training.tunnel import parse_config
from bayesattn.tunnels import Tunnel
from bayesattn.zoo import MODELS

SEQUENCES = 2000


def ship(run: Run, name: str, length: str = "1x", models: Path = MODELS) -> Path:
    """Copy the weights that count, with config, command and fidelity, to `models/name`."""
    if run.finished is None:
        raise ValueError(f"The run in {run.folder} is not finished; resume it first.")
    tunnel, architecture, config = parse_config(run)
    model, _ = load_predictor(run)
    target = models / name
    found: Fidelity = measure_stretched(model, tunnel, stretch(tunnel, length), sequences=SEQUENCES)
    step = run.finished["step"]
    tensors = {key: value.contiguous() for key, value in model.state_dict().items()}
    save_checkpoint(target / "checkpoints", step, {"model": tensors}, {})
    command = train_command(tunnel, architecture, config)
    write_json(target / "config.json", {**run.config, "command": command})
    write_json(target / "environment.json", run.environment)
    write_json(target / "finished.json", run.finished)
    parameters = sum(p.numel() for p in model.parameters() if p.requires_grad)
    write_json(target / "fidelity.json", {"parameters": parameters, **found.to_json()})
    return target


def train_command(tunnel: Tunnel, architecture: Architecture, config: TrainConfig) -> str:
    """What to type to train the same model."""
    words = ["bayesattn", "tunnel", "train", tunnel.name, "--architecture", architecture.name]
    for part in (tunnel, architecture, config):
        for field in fields(part):
            value = getattr(part, field.name)
            default = field.default if field.default_factory is MISSING else field.default_factory()
            if value != default:
                words += _option(field.name, value)
    return shlex.join([*words, "--out", "RUN"])


def _option(name: str, value: Any) -> list[str]:
    flag = f"--{name.replace('_', '-')}"
    if value is True:
        return [flag]
    if isinstance(value, dict):
        options = cast(dict[str, Any], value)
        return [flag, *(f"{key}={option}" for key, option in options.items())]
    if isinstance(value, tuple):
        return [flag, *map(str, cast(tuple[Any, ...], value))]
    return [flag, str(value)]


if __name__ == "__main__":
    folder, name, length = [*sys.argv[1:], "1x"][:3]
    print(ship(Run.open(folder), name, length))
