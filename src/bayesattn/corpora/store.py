"""A corpus as tokens on disk, mapped into memory, with a part of its documents held out.

A store is written once, as a stream, and atomically:

    train.tokens, heldout.tokens    one number per token, u2 or u4
    train.starts, heldout.starts    start of each document, i8
    about.json                      source, tokenizer and counts; written last
"""

import hashlib
import json
import os
import shutil
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from bayesattn.corpora.packages import name_of
from bayesattn.corpora.text import CorpusError, Part, listing, parts
from bayesattn.corpora.tokenizers import encode, fingerprint, start_token
from bayesattn.files import TEMPORARY, read_json, remove, sha256, sync, write_json
from bayesattn.system import release_memory

Split = Literal["train", "heldout"]
FORMAT = 1
"""Raise this when the content of a store changes."""
HELD_OUT = 10
"""One document out of so many is held out."""
SALT = "bayesattn 359"
"""Key of the hash that decides; with it the embedded corpus also holds out long documents."""
ABANDONED = 3600.0
"""Seconds after which an unfinished store counts as abandoned."""
BATCH = 2**20
"""Number of characters that are tokenised, and of tokens that are copied, together, roughly."""


FIELDS = {"source": str, "tokenizer": str, "start": int, "dtype": str, "train": dict}
FIELDS["heldout"] = dict
"""Fields of about.json. Newer files also have hashes of the files, and packages."""


class DamagedStoreError(CorpusError):
    """A store differs from what was written."""


class TokenStore:
    """Tokens of a corpus in `folder`, written by `prepare`."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        try:
            about: dict[str, Any] = read_json(self.folder / "about.json")
            strange = [name for name, kind in FIELDS.items() if not isinstance(about[name], kind)]
        except OSError:
            raise CorpusError(f"There are no tokens of a corpus in {folder}.") from None
        except (ValueError, KeyError, TypeError) as error:
            raise self._damage(f"about.json: {error}") from None
        if strange or about.keys() - FIELDS.keys() - {"sha256", "packages"}:
            raise self._damage("about.json is of something else")
        self.about = about
        self.source: str = about["source"]
        self.start: int = about["start"]
        """First token of every document."""

    def check(self) -> None:
        """Read every file and refuse a damaged one."""
        for name, expected in self.about.get("sha256", {}).items():
            path = self.folder / name
            if not path.is_file() or sha256(path) != expected:
                raise self._damage(f"{name} is not what was written")

    def _damage(self, reason: str) -> CorpusError:
        return DamagedStoreError(
            f"The tokens in {self.folder} are damaged ({reason}): delete that folder."
        )

    def __reduce__(self) -> tuple[type["TokenStore"], tuple[Path]]:
        return TokenStore, (self.folder,)  # other processes map the files themselves

    def tokens(self, split: Split) -> int:
        return self.about[split]["tokens"]

    def bytes_per_token(self, split: Split) -> float:
        """Bytes of UTF-8 text per token; start tokens count."""
        return self.about[split]["bytes"] / self.tokens(split)

    def stream(self, split: Split) -> NDArray[np.integer[Any]]:
        """All tokens, mapped from disk; slices are read when they are used."""
        if not self.tokens(split):
            raise CorpusError(f"The corpus {self.source} has no {split} tokens: give more text.")
        return self._mapped[split]

    def documents(self, split: Split, at_least: int = 1) -> Iterator[Tensor]:
        """[n] int64 tokens of each document that has `at_least` so many, start token included."""
        stream = self.stream(split)
        begins = np.fromfile(self.folder / f"{split}.starts", "<i8")
        for begin, end in zip(begins, [*begins[1:], len(stream)], strict=True):
            if end - begin >= at_least:
                yield torch.from_numpy(stream[begin:end].astype(np.int64))

    @cached_property
    def _mapped(self) -> dict[str, NDArray[np.integer[Any]]]:
        dtype = np.dtype(self.about["dtype"])
        mapped: dict[str, NDArray[np.integer[Any]]] = {}
        for split in get_args(Split):
            path, count = self.folder / f"{split}.tokens", self.tokens(split)
            if not path.exists() or path.stat().st_size != count * dtype.itemsize:
                raise self._damage(f"{path.name} has another size than was written")
            if count:
                mapped[split] = np.memmap(path, dtype, "r")
        return mapped


def prepare(
    source: str,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path | str | None = None,
    tokens: int | None = None,
) -> TokenStore:
    """The tokens of a corpus, from disk if they exist, otherwise written now.

    Args:
        source: name of the text, see `bayesattn.corpora.text`.
        tokenizer: any tokenizer; every document begins with its <bos>.
        folder: folder of stores; `corpora` in `$BAYESATTN_RUNS` or `runs` if None.
        tokens: stop reading after so many; all of them if None.
    """
    if tokens is not None and tokens < 1:
        raise CorpusError(f"tokens must be 1 or more, not {tokens}.")
    root = corpora_folder() if folder is None else folder
    decisive = [FORMAT, listing(source), fingerprint(tokenizer), tokens, SALT, HELD_OUT]
    path = Path(root) / hashlib.sha256(json.dumps(decisive).encode()).hexdigest()[:16]
    if (path / "about.json").exists():
        try:
            store = TokenStore(path)
            store.check()
            return store
        except DamagedStoreError as error:
            warnings.warn(f"{error} It is written anew.", stacklevel=2)
            remove(path)
    _build(path, source, tokenizer, tokens)
    return TokenStore(path)


def corpora_folder() -> Path:
    """Default folder of stores and trained tokenizers."""
    return Path(os.environ.get("BAYESATTN_RUNS", "runs"), "corpora")


def is_held_out(text: str) -> bool:
    """Whether a document that begins with this text, or a package of this name, is held out.

    The hash of the text or name decides.
    """
    digest = hashlib.sha256(f"{SALT}{text}".encode()).digest()
    return int.from_bytes(digest[:8], "little") % HELD_OUT == 0


def _build(
    folder: Path, source: str, tokenizer: PreTrainedTokenizerBase, limit: int | None
) -> None:
    root = folder.parent
    temporary = root / f"{TEMPORARY}{folder.name}-{os.getpid()}"
    try:
        root.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(root)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        about = _write(temporary, source, tokenizer, limit)
        for path in temporary.iterdir():
            sync(path)
        about["sha256"] = {path.name: sha256(path) for path in sorted(temporary.iterdir())}
        write_json(temporary / "about.json", about, checked=True)
        try:
            temporary.rename(folder)
        except OSError:  # another process may have been faster, with the same result
            if not (folder / "about.json").exists():
                raise
    except OSError as error:
        raise CorpusError(
            f"Cannot write the tokens of {source} to {root} ({error.strerror or error}): make room "
            "there, or set BAYESATTN_RUNS to another folder."
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _write(
    folder: Path, source: str, tokenizer: PreTrainedTokenizerBase, limit: int | None
) -> dict[str, Any]:
    start = start_token(tokenizer)
    dtype = "<u2" if len(tokenizer) <= 2**16 else "<u4"
    counts = {split: {"tokens": 0, "documents": 0, "bytes": 0} for split in get_args(Split)}
    packages: dict[str, dict[str, Any]] = {}
    total, split = 0, "train"
    with ExitStack() as stack:
        files = {
            (split, what): stack.enter_context((folder / f"{split}.{what}").open("wb"))
            for split in get_args(Split)
            for what in ("tokens", "starts")
        }
        for part, tokens in _tokenised(source, tokenizer):
            if limit is not None and total >= limit:
                break
            if part.first:
                split = "heldout" if to_be_held_out(part, alone=not total) else "train"
                tokens = [start, *tokens]
                _append(files[split, "starts"], [counts[split]["tokens"]], "<i8")
            size = len(part.text.encode())
            if limit is not None and total + len(tokens) > limit:
                size = round(size * (limit - total - part.first) / (len(tokens) - part.first))
                tokens = tokens[: limit - total]
            _append(files[split, "tokens"], tokens, dtype)
            total += len(tokens)
            counts[split]["tokens"] += len(tokens)
            counts[split]["documents"] += part.first
            counts[split]["bytes"] += size
            if part.package:
                fresh = {"split": split, "documents": 0, "bytes": 0}
                package = packages.setdefault(part.package, fresh)
                package["documents"] += part.first
                package["bytes"] += size
    if not counts["heldout"]["tokens"]:
        _hold_out_the_end(folder, counts, start, dtype)
    about = {"source": source, "tokenizer": fingerprint(tokenizer), "start": start, "dtype": dtype}
    return about | counts | ({"packages": dict(sorted(packages.items()))} if packages else {})


def to_be_held_out(part: Part, alone: bool) -> bool:
    """Whether the document that begins with `part` is held out.

    The first document (`alone`) is for training, so every corpus has training text.
    """
    if part.package:
        return is_held_out(name_of(part.package))
    return not alone and is_held_out(part.text)


def _tokenised(source: str, tokenizer: PreTrainedTokenizerBase) -> Iterator[tuple[Part, list[int]]]:
    for batch in _batches(source):
        yield from zip(batch, encode(tokenizer, [part.text for part in batch]), strict=True)
        release_memory()  # tokenizers leaves holes that glibc keeps: gigabytes after a long text


def _batches(source: str) -> Iterator[list[Part]]:
    waiting: list[Part] = []
    characters = 0
    for part in parts(source):
        waiting.append(part)
        characters += len(part.text)
        if characters >= BATCH:
            yield waiting
            waiting, characters = [], 0
    if waiting:
        yield waiting


def _append(file: BinaryIO, numbers: list[int], dtype: str) -> None:
    file.write(np.array(numbers, dtype=dtype).tobytes())


def _hold_out_the_end(
    folder: Path, counts: dict[str, dict[str, int]], start: int, dtype: str
) -> None:
    """If no document is held out, hold out the last tenth of the tokens as one document."""
    train, heldout = counts["train"], counts["heldout"]
    moved = train["tokens"] // HELD_OUT
    if not moved:
        return
    path, held = folder / "train.tokens", 1
    kept, width = train["tokens"] - moved, np.dtype(dtype).itemsize
    with path.open("rb") as file, (folder / "heldout.tokens").open("wb") as end:
        _append(end, [start], dtype)
        file.seek(kept * width)
        while len(part := np.fromfile(file, dtype, BATCH)):
            rest = part[part != start]
            end.write(rest.tobytes())
            held += len(rest)
    os.truncate(path, kept * width)
    starts = np.fromfile(folder / "train.starts", "<i8")
    starts[starts < kept].tofile(folder / "train.starts")
    np.zeros(1, "<i8").tofile(folder / "heldout.starts")
    share = moved / train["tokens"]
    heldout.update(tokens=held, documents=1, bytes=round(share * train["bytes"]))
    train.update(tokens=kept, documents=int((starts < kept).sum()))
    train["bytes"] -= heldout["bytes"]


def _remove_abandoned(root: Path) -> None:
    for path in root.glob(f"{TEMPORARY}*"):
        with suppress(OSError):  # its writer may be moving it now
            newest = max(p.stat().st_mtime for p in [path, *path.glob("*")])
            if time.time() - newest > ABANDONED:
                shutil.rmtree(path, ignore_errors=True)
