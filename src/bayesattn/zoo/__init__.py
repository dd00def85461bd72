"""Trained models that come with the package. Each is a run without its optimiser.

    model, tunnel = load_predictor(locate("zoo:bijection-10"))

Wherever a command takes a run, `zoo:NAME` names one of these.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

PREFIX = "zoo:"
MODELS = Path(__file__).parent / "models"


class Entry(NamedTuple):
    """What is known of a model without loading it."""

    name: str
    command: str
    """What trains it again."""
    seconds: float
    """How long that took, on one thread."""
    parameters: int
    fidelity: list[dict[str, Any]]
    """Rows of `Fidelity.rows()`, of the model and of the trivial predictors."""


def names() -> list[str]:
    """Names of all models."""
    return sorted(path.parent.name for path in MODELS.glob("*/config.json"))


def locate(text: str) -> Path:
    """The folder of a run: that of `zoo:NAME`, or `text` itself."""
    if not text.startswith(PREFIX):
        return Path(text)
    name = text.removeprefix(PREFIX)
    if name not in names():
        raise ValueError(f"There is no {text!r}: the zoo has {', '.join(names())}.")
    return MODELS / name


def entry(name: str) -> Entry:
    """The record of a model."""
    folder = locate(f"{PREFIX}{name}")
    about = json.loads((folder / "fidelity.json").read_text(encoding="utf-8"))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    finished = json.loads((folder / "finished.json").read_text(encoding="utf-8"))
    return Entry(name, config["command"], finished["seconds"], about["parameters"], about["rows"])
