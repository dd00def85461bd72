"""Trained models that come with the package. Each is a run without its optimiser.

    model, tunnel = open_tunnel("zoo:bijection-10")
    language_model = open_language("zoo:passkey")

`zoo:NAME` names one of these models in every command that takes a run.
"""

from pathlib import Path
from typing import Any, NamedTuple

from bayesattn.errors import UserError
from bayesattn.files import read_json

PREFIX = "zoo:"
MODELS = Path(__file__).parent / "models"
"""Models of tunnels."""
LANGUAGE = Path(__file__).parent / "language"
"""Language models."""


class Entry(NamedTuple):
    """Facts about a model of a tunnel, without loading it."""

    name: str
    command: str
    """The command that trains the model again."""
    seconds: float
    """Seconds of the training on one thread."""
    parameters: int
    fidelity: list[dict[str, Any]]
    """Rows of `Fidelity.rows()`, for the model and the trivial predictors."""


class LanguageEntry(NamedTuple):
    """Facts about a language model, without loading it."""

    name: str
    command: str
    """The command that trains the model again."""
    seconds: float
    """Seconds of the training on one thread."""
    parameters: int
    trained: int
    """Number of tokens of a training sequence."""
    lengths: list[dict[str, Any]]
    """Passkeys found, by length; rows of `Passkey.to_json()`."""


def names(folder: Path = MODELS) -> list[str]:
    """Names of all models of tunnels, or of the models in another folder."""
    return sorted(path.parent.name for path in folder.glob("*/config.json"))


def locate(text: str) -> Path:
    """The folder of `zoo:NAME`; any other `text` is a folder itself."""
    if not text.startswith(PREFIX):
        return Path(text)
    name = text.removeprefix(PREFIX)
    for folder in (MODELS, LANGUAGE):
        if name in names(folder):
            return folder / name
    known = ", ".join([*names(), *names(LANGUAGE)])
    raise UserError(f"There is no {text!r}: the zoo has {known}.")


def entry(name: str) -> Entry:
    return Entry(*_training(name), *_read(name, "fidelity.json", "parameters", "rows"))


def language_entry(name: str) -> LanguageEntry:
    about = _read(name, "passkey.json", "parameters", "trained", "lengths")
    return LanguageEntry(*_training(name), *about)


def _training(name: str) -> tuple[str, str, float]:
    return name, *_read(name, "config.json", "command"), *_read(name, "finished.json", "seconds")


def _read(name: str, file: str, *fields: str) -> tuple[Any, ...]:
    path = locate(f"{PREFIX}{name}") / file
    try:
        found = read_json(path)
        return tuple(found[field] for field in fields)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is damaged ({error}): install bayesattn again.") from None
