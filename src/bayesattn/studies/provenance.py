"""Which code a study's numbers depend on: its own, all of ours that it imports, and their data.

Read from the import statements, so nothing has to be run. While this code is as it was, what was
measured stands. Neither a change elsewhere asks for a new measurement, nor one of words: comments,
docstrings, what a study says of itself, and how it judges and draws the numbers that it has.
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
AFTERWARDS = {"judge", "draw", "exhibits"}
"""Methods of a study that are given numbers and make none."""
WORDS = {"claim", "method", "null"}
"""What a study says of itself."""


@cache
def digest(file: Path) -> str:
    """Hash over a source file, all of this package that it imports, and their data files."""
    found = hashlib.sha256()
    for path in sorted(sources(file)):
        found.update(path.name.encode())
        found.update(_decisive(path))
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
def _decisive(file: Path) -> bytes:
    """What of a file can change a number: of data all, of code what it does."""
    if file.suffix != ".py":
        return file.read_bytes()
    tree = _Decisive().visit(ast.parse(file.read_bytes()))
    return ast.unparse(tree).encode()


class _Decisive(ast.NodeTransformer):
    """Leaves out docstrings, and of studies words and what comes after measuring."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        # a docstring, of anything, or a string that nobody reads
        text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return ast.Pass() if text else self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        if any(
            isinstance(each, ast.Name) and each.id == "register" for each in node.decorator_list
        ):
            node.body = [each for each in node.body if not _afterwards(each)]
        return self.generic_visit(node)


def _afterwards(node: ast.stmt) -> bool:
    """Whether this part of a study is of no account for its numbers."""
    if isinstance(node, ast.FunctionDef):
        return node.name in AFTERWARDS
    targets = node.targets if isinstance(node, ast.Assign) else []
    return any(isinstance(target, ast.Name) and target.id in WORDS for target in targets)


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
