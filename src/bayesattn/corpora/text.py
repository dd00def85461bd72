"""Documents from files, folders, Hugging Face datasets, and from Python itself.

    pydoc                          the documentation topics that ship with CPython; no download
    FILE.txt, FILE.md              one document
    FILE.jsonl                     a document per line, in the field "text"
    FOLDER                         all such files in the folder, sorted
    hf:NAME[:CONFIG[:SPLIT]]       a Hugging Face dataset with a column "text", streamed
    site-packages[:docs]           the Python packages of this environment (packages.py)

Text is streamed: only a part of a large file is in memory.
"""

import codecs
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bayesattn.corpora.packages import KINDS, package_documents, package_list
from bayesattn.errors import UserError

EMBEDDED = "pydoc"
DATASET = "hf:"
SUFFIXES = (".txt", ".md", ".jsonl")
PART = 2**20
"""Longer text files are read in parts of about so many characters; each part ends with a line."""


class CorpusError(UserError):
    """An error about text, tokenizer or needle: one sentence with the fix."""


class Part(NamedTuple):
    """A document, or a part of a large one."""

    text: str
    first: bool
    """Whether this part is the beginning of a document."""
    package: str = ""
    """Package as NAME==VERSION, which is held out as a whole; empty for other documents."""


def documents(source: str) -> Iterator[str]:
    waiting: list[str] = []
    for part in parts(source):
        if part.first and waiting:
            yield "".join(waiting)
            waiting.clear()
        waiting.append(part.text)
    yield "".join(waiting)


def parts(source: str) -> Iterator[Part]:
    """The documents of a corpus, large ones in several parts; at least one."""
    found = False
    for part in _parts(source):
        if part.text:
            found = True
            yield part
    if not found:
        raise CorpusError(f"The corpus {source} is empty: give one with text in it.")


def listing(source: str) -> list[Any]:
    """Names, sizes and times of the files of a corpus, which identify it without reading it."""
    if source == EMBEDDED:
        text = "\0".join(part.text for part in _embedded())
        return [EMBEDDED, hashlib.sha256(text.encode()).hexdigest()]
    if source.startswith(DATASET):
        return [source]
    if source in KINDS:
        return [source, *package_list()]
    found: list[Any] = []
    for path in _files(source):
        state = path.stat()
        found.append([str(path.resolve()), state.st_size, state.st_mtime_ns])
    return found


def _parts(source: str) -> Iterator[Part]:
    if source == EMBEDDED:
        yield from _embedded()
    elif source.startswith(DATASET):
        yield from _dataset(source)
    elif source in KINDS:
        for text, package in package_documents(source):
            yield Part(text, True, package)
    else:
        for path in _files(source):
            try:
                yield from _lines(path) if path.suffix == ".jsonl" else _text(path)
            except OSError as error:
                raise CorpusError(f"Cannot read {path} ({error.strerror}).") from error


def _embedded() -> Iterator[Part]:
    from pydoc_data.topics import topics

    for name in sorted(topics):
        yield Part(topics[name], True)


def require_source(source: str) -> None:
    """Be sure that there is such a corpus, of which nothing is read."""
    if not (source == EMBEDDED or source.startswith(DATASET) or source in KINDS):
        _files(source)


def _files(source: str) -> list[Path]:
    path, endings = Path(source), ", ".join(SUFFIXES)
    if path.is_dir():
        below = [found for found in path.rglob("*") if found.suffix in SUFFIXES]
        hidden = [any(name.startswith(".") for name in p.relative_to(path).parts) for p in below]
        files = sorted(p for p, h in zip(below, hidden, strict=True) if p.is_file() and not h)
        if not files:
            raise CorpusError(f"There is no text in {path}: no file in it ends in {endings}.")
        return files
    if not path.is_file():
        raise CorpusError(
            f"There is no corpus {source}: give a file or folder of {endings}, hf:NAME for a "
            f"Hugging Face dataset, {', '.join(KINDS)} or {EMBEDDED}."
        )
    if path.suffix not in SUFFIXES:
        raise CorpusError(f"The corpus {source} must end in one of {endings}.")
    return [path]


def _text(path: Path) -> Iterator[Part]:
    position, pending, held, first = 0, b"", "", True
    with path.open("rb") as file:
        while True:
            block = file.read(PART)
            data = pending + block
            try:
                text, used = codecs.utf_8_decode(data, "strict", not block)
            except UnicodeDecodeError as error:
                raise _unreadable(path, position + error.start) from None
            if position == 0:
                text = text.removeprefix("\ufeff")  # byte order mark of some editors
            position += used
            pending = data[used:]
            held += text
            if not block:
                break
            if len(held) > PART:
                cut = held.rfind("\n") + 1 or len(held)
                yield Part(held[:cut], first)
                held, first = held[cut:], False
    if held:
        yield Part(held, first)


def _lines(path: Path) -> Iterator[Part]:
    position = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise _unreadable(path, position + error.start) from None
            position += len(line)
            if not text.strip():
                continue
            try:
                row = json.loads(text)
            except ValueError:
                raise CorpusError(f"Line {number} of {path} is no JSON.") from None
            if not isinstance(row, dict) or not isinstance(row.get("text"), str):
                raise CorpusError(
                    f'Line {number} of {path} has no text: every line must be {{"text": "…"}}.'
                )
            yield Part(row["text"], True)


def _unreadable(path: Path, position: int) -> CorpusError:
    return CorpusError(f"{path} is not UTF-8 at byte {position:,}: convert it to UTF-8.")


def _dataset(source: str) -> Iterator[Part]:
    try:
        from datasets import load_dataset  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise CorpusError(
            f"The corpus {source} needs the datasets library: pip install bayesattn[data]"
        ) from None
    name, config, split = (*source.removeprefix(DATASET).split(":"), "", "")[:3]
    try:
        for row in load_dataset(name, config or None, split=split or "train", streaming=True):
            if not isinstance(row.get("text"), str):
                raise CorpusError(
                    f"The dataset {source} has no column text; its columns are {', '.join(row)}."
                )
            yield Part(row["text"], True)
    except CorpusError:
        raise
    except Exception as error:  # errors of the hub, the network or the name
        reason = str(error).split("\n")[0]
        raise CorpusError(f"Cannot read the dataset {source} ({reason}).") from error
