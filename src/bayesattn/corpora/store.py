"""A corpus as tokens on disk, mapped into memory, with a part of its documents held out.

store = prepare("pydoc", load_tokenizer("words"))
tokens, documents = store.windows("train", 128, torch.arange(32), seed=0)
"""

import hashlib
import json
import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from bayesattn.corpora.building import HELD_OUT, SALT, build
from bayesattn.corpora.errors import CorpusError
from bayesattn.corpora.shuffling import window_starts
from bayesattn.corpora.text import listing
from bayesattn.corpora.tokenizers import fingerprint

Split = Literal["train", "heldout"]
FORMAT = 1
"""Changes when what a store holds does."""


def prepare(
    source: str,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path | str | None = None,
    tokens: int | None = None,
) -> "TokenStore":
    """The tokens of a corpus: from disk if they are there already, else written now.

    Args:
        source: of the text, see `bayesattn.corpora.text`.
        tokenizer: any; every document begins with its <bos>.
        folder: where stores are kept; `corpora` in `$BAYESATTN_RUNS` or `runs` if None.
        tokens: stop reading after so many; all of them if None.
    """
    if tokens is not None and tokens < 1:
        raise CorpusError(f"tokens must be 1 or more, not {tokens}.")
    root = Path(os.environ.get("BAYESATTN_RUNS", "runs"), "corpora") if folder is None else folder
    decisive = [FORMAT, listing(source), fingerprint(tokenizer), tokens, SALT, HELD_OUT]
    path = Path(root) / hashlib.sha256(json.dumps(decisive).encode()).hexdigest()[:16]
    if not (path / "about.json").exists():
        build(path, source, tokenizer, tokens)
    return TokenStore(path)


class TokenStore:
    """Tokens of a corpus in `folder`, written by `prepare`."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        try:
            about = json.loads((self.folder / "about.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise CorpusError(f"There are no tokens of a corpus in {folder}.") from None
        self.about: dict[str, Any] = about
        self.source: str = about["source"]
        self.start: int = about["start"]
        """Token that every document begins with."""

    def __reduce__(self) -> tuple[type["TokenStore"], tuple[Path]]:
        return TokenStore, (self.folder,)  # other processes map the files themselves

    def tokens(self, split: Split) -> int:
        """Number of tokens."""
        return self.about[split]["tokens"]

    def bytes_per_token(self, split: Split) -> float:
        """Bytes of UTF-8 text per token, the starts of documents counted as tokens."""
        return self.about[split]["bytes"] / self.tokens(split)

    def stream(self, split: Split) -> NDArray[np.integer[Any]]:
        """All tokens, mapped from disk; slices of it are read when they are looked at."""
        if not self.tokens(split):
            raise CorpusError(f"The corpus {self.source} has no {split} tokens: give more text.")
        return self._mapped[split]

    def documents(self, split: Split, at_least: int = 1) -> Iterator[Tensor]:
        """[n] int64 tokens of each document with `at_least` so many, the start included."""
        stream = self.stream(split)
        begins = np.fromfile(self.folder / f"{split}.starts", "<i8")
        for begin, end in zip(begins, [*begins[1:], len(stream)], strict=True):
            if end - begin >= at_least:
                yield torch.from_numpy(stream[begin:end].astype(np.int64))

    def windows(
        self, split: Split, length: int, indices: Tensor, seed: int = 0
    ) -> tuple[Tensor, Tensor]:
        """Tokens and documents [B, length] of windows number `indices` [B] of a shuffled stream.

        The stream is endless, and the same index gives the same window to whoever asks: a position
        in it is a number. `documents` counts those in the window, from 0.
        """
        count = self.tokens(split)
        if length < 1 or count < length:
            raise CorpusError(
                f"The corpus {self.source} has {count:,} {split} tokens, fewer than one window of "
                f"{length:,}: give more text or choose a shorter length."
                if length >= 1
                else f"The length of a window must be 1 or more, not {length}."
            )
        starts = window_starts(count, length, indices.numpy(), seed)
        where = starts[:, None] + np.arange(length)
        tokens = torch.from_numpy(self.stream(split)[where].astype(np.int64))
        begins = tokens == self.start
        begins[:, 0] = False
        return tokens, begins.cumsum(1)

    @cached_property
    def _mapped(self) -> dict[str, NDArray[np.integer[Any]]]:
        dtype = np.dtype(self.about["dtype"])
        mapped: dict[str, NDArray[np.integer[Any]]] = {}
        for split in ("train", "heldout"):
            path, count = self.folder / f"{split}.tokens", self.tokens(split)
            if not path.exists() or path.stat().st_size != count * dtype.itemsize:
                raise CorpusError(f"The tokens in {self.folder} are damaged: delete that folder.")
            if count:
                mapped[split] = np.memmap(path, dtype, "r")
        return mapped
