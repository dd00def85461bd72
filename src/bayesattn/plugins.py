"""Priors, tunnels and claims of users: a file that --import names, or an entry point.

    bayesattn lm train tiny --import mine.py --prior mine --out RUN

The file registers its classes: `PRIORS["mine"] = Mine`, `TUNNELS["mine"] = Mine`, or a class under
`@register("my-claim", folder=…)`. An installed package does the same in a module that is its
entry point of the group "bayesattn". Processes that a command starts import the same files.
"""

import importlib.util
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from bayesattn.errors import UserError

OPTION = "--import"
VARIABLE = "BAYESATTN_IMPORT"
"""Environment variable with the files that child processes import."""
GROUP = "bayesattn"


def taken(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words without --import and its values, and the named files."""
    rest: list[str] = []
    files: list[str] = []
    waiting = iter(words)
    for word in waiting:
        flag, equals, value = word.partition("=")
        if flag != OPTION:
            rest.append(word)
            continue
        file = value if equals else next(waiting, "")
        if not file:
            raise UserError(f"The option {OPTION} needs a value: {OPTION} FILE.py.")
        if not Path(file).is_file():
            raise UserError(f"{OPTION} {file}: there is no such file.")
        files.append(str(Path(file).resolve()))
    return rest, files


def announce(files: Sequence[str]) -> None:
    """Set the files that this process and its children import."""
    if files:
        os.environ[VARIABLE] = os.pathsep.join(dict.fromkeys([*_named(), *files]))


def _named() -> list[str]:
    return [file for file in os.environ.get(VARIABLE, "").split(os.pathsep) if file]


def load() -> None:
    """Import the announced files and the entry points of installed packages, each once."""
    for file in _named():
        import_file(file)
    _load_installed()


@cache
def import_file(file: str) -> None:
    """Import a file under its own name; a UserError names the line where it fails."""
    path = Path(file)
    name = path.stem
    if name in sys.modules:
        raise UserError(f"{OPTION} {path.name}: a module is called {name!r} already; rename yours.")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UserError(f"{OPTION} {path.name}: that is no Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise UserError(
            f"{OPTION} {path.name} fails{_line(error, path)}: {_error_text(error)}"
        ) from error


def extended() -> bool:
    """Whether any file is, or will be, imported."""
    return bool(os.environ.get(VARIABLE) or entry_points(group=GROUP))


def names() -> list[str]:
    """Names of the files that are, or will be, imported."""
    return [Path(file).name for file in _named()]


def needed_by(kind: type) -> str:
    """The module that defines a class; empty for classes of bayesattn."""
    module = kind.__module__
    return "" if module.partition(".")[0] == "bayesattn" else module


def require(kind: str, name: str, known: Mapping[str, Any], stored: Mapping[str, Any]) -> None:
    """Check that `name` is known; otherwise say which import the `stored` object needs."""
    module = stored.get("bayesattn_import")
    if not module or name in known:
        return
    load()
    if name not in known:
        raise UserError(
            f"The {kind} {name!r} is defined in {module}: import that before the model is loaded, "
            f"or pass {OPTION} {module.replace('.', '/')}.py to the command."
        )


@cache
def _load_installed() -> None:
    for point in entry_points(group=GROUP):
        try:
            point.load()
        except Exception as error:
            raise UserError(
                f"The package {point.value.partition(':')[0]}, which extends bayesattn, fails: "
                f"{_error_text(error)}"
            ) from error


def _line(error: Exception, path: Path) -> str:
    if isinstance(error, SyntaxError):
        return f" in line {error.lineno}"
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == str(path)
    ]
    return f" in line {lines[-1]}" if lines else ""


def _error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
