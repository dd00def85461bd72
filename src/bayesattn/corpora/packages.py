"""The Python packages of this environment as a corpus: text that every machine has.

    site-packages         source files, one document each
    site-packages:docs    the docstrings of each file, as one document

The hash of its name decides whether a whole package is held out (`store.is_held_out`), so all
machines hold out the same ones. The order of documents mixes packages, so the first million tokens
are a sample.

Left out are: this package, whose source changes; copies of other packages inside a package
(`VENDORED`); files above `LONGEST` bytes, mostly tables; files that are not UTF-8; docstrings
shorter than `SHORTEST` characters; and repeated texts, compared without licence and white space.
"""

import ast
import hashlib
import re
import warnings
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from inspect import cleandoc
from pathlib import Path

PACKAGES = "site-packages"
KINDS = (PACKAGES, f"{PACKAGES}:docs")
OURS = "bayesattn"
VENDORED = frozenset({"_vendor", "_vendored", "vendor", "vendored", "vendored_packages", "extern"})
LONGEST = 300_000
SHORTEST = 200
LICENCE = re.compile(r"\A(?:[ \t]*(?:#[^\n]*)?\n)+")
"""Comments and empty lines at the beginning of a file."""


def package_documents(source: str) -> Iterator[tuple[str, str]]:
    """Text and package, as NAME==VERSION, of each document."""
    seen: set[bytes] = set()
    for _, package, path in sorted(_files()):
        try:
            if path.stat().st_size > LONGEST:
                continue
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        text = text if source == PACKAGES else docstrings(text)
        if not text.strip() or (source != PACKAGES and len(text) < SHORTEST):
            continue
        digest = _digest(text)
        if digest not in seen:
            seen.add(digest)
            yield text, package


def package_list() -> list[str]:
    """NAME==VERSION of each package with Python files, sorted."""
    return sorted({package for _, package, _ in _files()})


def name_of(package: str) -> str:
    return package.partition("==")[0]


def docstrings(source: str) -> str:
    """Every docstring of a file, below the name of its object; "" if it is not Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about invalid escapes in foreign strings
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return ""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, kinds) and (text := ast.get_docstring(node, clean=False)):
            name = "" if isinstance(node, ast.Module) else f"{node.name}\n\n"
            found.append(f"{name}{cleandoc(text)}\n")
    return "\n".join(found)


def _files() -> Iterator[tuple[bytes, str, Path]]:
    """Place in the order, package and path of each file; no package twice."""
    known: set[str] = set()
    for one in distributions():
        name = re.sub(r"[-_.]+", "-", str(one.metadata["Name"])).lower()
        if name in known or name == OURS:
            continue
        known.add(name)
        yield from _of_package(one, name)


def _of_package(one: Distribution, name: str) -> Iterator[tuple[bytes, str, Path]]:
    for path in one.files or ():
        outside = ".." in path.parts or path.is_absolute()
        if path.suffix == ".py" and not outside and VENDORED.isdisjoint(path.parts):
            place = hashlib.sha256(f"{name}/{path.as_posix()}".encode()).digest()
            yield place, f"{name}=={one.version}", Path(str(one.locate_file(path)))


def _digest(text: str) -> bytes:
    head = LICENCE.match(text)
    if head and re.search("copyright|licen[sc]e", head[0], re.IGNORECASE):
        text = text[head.end() :]
    return hashlib.sha256("".join(text.split()).encode()).digest()[:16]
