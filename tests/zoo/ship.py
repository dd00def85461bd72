"""Put a finished run into the zoo: `python -m tests.zoo.ship RUN NAME [LENGTHS]`.

Of a tunnel the fidelity up to that length comes along, of a language model the passkeys found.
"""

import shlex
import shutil
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

import tyro
from torch import nn
from tyro.conf import Positional

from bayesattn.checks import changed_fields
from bayesattn.commands.options import RunFolder
from bayesattn.evals.fidelity import Fidelity, measure_stretched
from bayesattn.evals.lengths import stretch
from bayesattn.evals.passkey import passkey
from bayesattn.files import write_json
from bayesattn.models.architectures import Architecture
from bayesattn.models.language_config import LanguageConfig
from bayesattn.models.open import open_language, open_tunnel
from bayesattn.runs import TOKENIZER
from bayesattn.runs.checkpoint import save_checkpoint
from bayesattn.training import Run, TrainConfig
from bayesattn.training.language import parse_config as parse_language
from bayesattn.training.recipes import LANGUAGE_RECIPES
from bayesattn.training.tunnel import parse_config
from bayesattn.tunnels import Tunnel
from bayesattn.zoo import LANGUAGE, MODELS

SEQUENCES = 2000


def ship(run: Run, name: str, length: str = "1x", models: Path = MODELS) -> Path:
    """Copy the weights that count, with config, command and fidelity, to `models/name`."""
    _require_finished(run)
    tunnel, architecture, config = parse_config(run)
    model, _ = open_tunnel(run)
    found: Fidelity = measure_stretched(model, tunnel, stretch(tunnel, length), sequences=SEQUENCES)
    target = _copy(run, model, models / name, train_command(tunnel, architecture, config))
    fidelity = {"parameters": _count(model), **found.to_json()}
    write_json(target / "fidelity.json", fidelity, checked=True)
    return target


def ship_language(run: Run, name: str, lengths: str = "1x", models: Path = LANGUAGE) -> Path:
    """The same of a language model, with the passkeys that it finds at these lengths."""
    _require_finished(run)
    language_model = open_language(run)
    found = passkey(language_model, lengths).to_json() | {"model": name}
    command = language_command(*parse_language(run))
    target = _copy(run, language_model.model, models / name, command)
    parameters = {"parameters": _count(language_model.model)}
    write_json(target / "passkey.json", parameters | found, checked=True)
    return target


def _require_finished(run: Run) -> None:
    if run.finished is None:
        raise ValueError(f"The run in {run.folder} is not finished; resume it first.")


def _copy(run: Run, model: nn.Module, target: Path, command: str) -> Path:
    """Weights, config, environment and how the training ended."""
    assert run.finished is not None
    tensors = {key: value.contiguous() for key, value in model.state_dict().items()}
    save_checkpoint(target / "checkpoints", run.finished["step"], {"model": tensors}, {})
    write_json(target / "config.json", {**run.config, "command": command}, checked=True)
    write_json(target / "environment.json", run.environment, checked=True)
    write_json(target / "finished.json", run.finished, checked=True)
    if (run.folder / TOKENIZER).exists():
        shutil.copytree(run.folder / TOKENIZER, target / TOKENIZER)
    return target


def _count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def train_command(tunnel: Tunnel, architecture: Architecture, config: TrainConfig) -> str:
    """What to type to train the same model."""
    words = ["bayesattn", "tunnel", "train", tunnel.name, "--architecture", architecture.name]
    for part in (tunnel, architecture, config):
        for name, value in changed_fields(part).items():
            words += _option(name, value)
    return shlex.join([*words, "--out", "RUN"])


def language_command(language: LanguageConfig, training: TrainConfig) -> str:
    """The same of a language model, from the recipe that is nearest."""
    shortest: list[str] | None = None
    for recipe in ("tiny", "published"):
        words = ["bayesattn", "lm", "train", recipe]
        for own, usual in zip((language, training), LANGUAGE_RECIPES[recipe](), strict=True):
            for one in fields(own):
                value = getattr(own, one.name)
                if value != getattr(usual, one.name):
                    words += _option(one.name, value)
        shortest = words if shortest is None or len(words) < len(shortest) else shortest
    assert shortest is not None
    return shlex.join([*shortest, "--out", "RUN"])


def _option(name: str, value: Any) -> list[str]:
    flag = f"--{name.replace('_', '-')}"
    if value is True:
        return [flag]
    if value is False:
        return [f"--no-{flag[2:]}"]
    if isinstance(value, dict):
        options = cast(dict[str, Any], value)
        return [flag, *(f"{key}={option}" for key, option in options.items())]
    if isinstance(value, tuple | list):
        return [flag, *map(str, cast(Sequence[Any], value))]
    return [flag, str(value)]


def _ship(run: RunFolder, name: Positional[str], lengths: Positional[str] = "1x") -> None:
    opened = Run.open(run)
    print((ship_language if "language" in opened.config else ship)(opened, name, lengths))


if __name__ == "__main__":
    tyro.cli(_ship)
