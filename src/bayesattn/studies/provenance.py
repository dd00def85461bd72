"""Which files a study's numbers depend on: its own, all of ours that it imports, and their data.

Read from the import statements, so nothing has to be run. While these files are as they were, what
was measured stands; a change elsewhere does not ask for a new measurement.
"""

import ast
import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import bayesattn

ROOT = Path(bayesattn.__file__).parent
IGNORED = {".pyc", ".html", ".css", ".js", ".typed"}
"""Endings of files that decide how something looks, not what is measured."""


@cache
def digest(file: Path) -> str:
    """Hash over a source file, all of this package that it imports, and their data files."""
    found = hashlib.sha256()
    for path in sorted(sources(file)):
        found.update(path.name.encode())
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


def sources(file: Path) -> set[Path]:
    """`file` and all of this package that it needs."""
    found: set[Path] = set()
    waiting = [file]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += _imported(path)
    packages = [path.parent for path in found if path.name == "__init__.py" and path.parent != ROOT]
    return found | {data for package in packages for data in _data(package)}


@cache
def _imported(file: Path) -> tuple[Path, ...]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    paths = (_file(name) for name in names if name.split(".")[0] == ROOT.name)
    return tuple(path for path in paths if path is not None)


def _file(name: str) -> Path | None:
    """The file of a module; None for names inside one."""
    base = ROOT.joinpath(*name.split(".")[1:])
    for path in (base.with_name(f"{base.name}.py"), base / "__init__.py"):
        if path.exists():
            return path
    return None


def _data(package: Path) -> Iterator[Path]:
    for path in package.rglob("*"):
        known = path.suffix == ".py" or path.suffix in IGNORED or "__pycache__" in path.parts
        if path.is_file() and not known:
            yield path
