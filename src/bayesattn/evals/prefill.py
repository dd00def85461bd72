"""Long prompts through any causal LM: in chunks, with a cache, in bounded memory.

    reader = Reader(model, batch=1, tokens=65_536)
    logits = reader.logits(prompt, asked=[65_535])      # [1, 1, vocabulary]

What was read stays in the cache, so the next tokens cost only themselves; `rewind` goes back to any
earlier place, so prompts that begin alike share their beginning. Models of ours run through the
strided kernel, and with `tolerance` leave out keys that provably hold less than that share of the
posterior. The last layer computes nothing where no logits are asked for.
"""

import inspect
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import Cache, PreTrainedModel

from bayesattn.evals.memory import (
    MEMORY,
    check_length,
    chunk_size,
    config_of,
    whole_only,
    windows,
)
from bayesattn.evals.prediction import evaluating
from bayesattn.evals.room import Room

TOGETHER = 8192  # tokens of short sequences that are read at once
_PLAIN = {"full_attention", "sliding_attention", "chunked_attention"}


Tell = Callable[[int, int], None]


class Piece(NamedTuple):
    """Logits of one chunk."""

    asked: Tensor
    """[k] indices in the tokens that were given to `read`."""
    logits: Tensor
    """[B, k, vocabulary] for the token after each of them."""


class Rows(NamedTuple):
    """Some of many sequences, just read."""

    indices: list[int]
    logits: Tensor
    """[B, k, vocabulary] after the asked tokens."""
    reader: "Reader"
    """To read on from there; it goes back by itself for the next rows."""


class Reader:
    """Reads sequences into a cache, chunk by chunk.

    Args:
        model: any Hugging Face causal LM; it is put back as it was after every chunk.
        batch: sequences read together.
        tokens: how many of each will be in the cache at once, at most.
        every: logits will be asked for after every token, not after a few.
        memory: bytes that reading may take beyond the model.
        tolerance: share of the posterior that attention may leave out; models of ours on a CPU.
        tell: called after every chunk with the tokens that were in the cache before and are now.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        batch: int,
        tokens: int,
        every: bool = False,
        memory: int = MEMORY,
        tolerance: float | None = None,
        tell: Tell | None = None,
    ) -> None:
        check_tolerance(model, tolerance)
        check_length(model, tokens)
        accepted = inspect.signature(model.forward).parameters
        if "past_key_values" not in accepted:
            raise ValueError(
                f"{type(model).__name__} keeps no cache of keys and values, so a long prompt "
                "cannot be read in chunks"
            )
        self.model = model
        self.tolerance = tolerance
        self.chunk = chunk_size(model, batch, tokens, every=every, memory=memory)
        self.length = 0
        """Tokens read so far."""
        self._tokens = tokens
        self._tell = tell
        self._keeps = "logits_to_keep" in accepted
        self._cache = _make_cache(model, tokens)

    def read(self, tokens: Tensor, asked: Sequence[int] | None = None) -> Iterator[Piece]:
        """Read [B, n] further tokens; logits where they are asked for, by default everywhere.

        Yields chunk by chunk, also those without logits. What the iterator is not asked for, is not
        read.
        """
        tokens = tokens.to(self.model.device)
        everywhere = range(tokens.shape[1])
        wanted = torch.tensor(everywhere if asked is None else sorted(asked), dtype=torch.long)
        for start in range(0, tokens.shape[1], self.chunk):
            stop = min(start + self.chunk, tokens.shape[1])
            here = wanted[(wanted >= start) & (wanted < stop)]
            logits = self._forward(tokens[:, start:stop], here - start)
            self.length += stop - start
            if isinstance(self._cache, Room) and stop - start == self.chunk:
                self._cache.mark()
            if self._tell is not None:
                self._tell(self.length - (stop - start), self.length)
            yield Piece(here, logits)

    def logits(self, tokens: Tensor, asked: Sequence[int]) -> Tensor:
        """Read [B, n] further tokens; logits [B, k, vocabulary] after the asked ones, in order."""
        return torch.cat([piece.logits for piece in self.read(tokens, asked)], dim=1)

    def rewind(self, length: int) -> int:
        """Forget all but the first `length` tokens, or more where that is impossible; how many."""
        if length < self.length:
            if whole_only(self.model):
                length = 0
            if isinstance(self._cache, Room):
                length = self._cache.rewind(length)
            else:
                length, self._cache = 0, _make_cache(self.model, self._tokens)
            self.length = length
        return self.length

    def _forward(self, tokens: Tensor, keep: Tensor) -> Tensor:
        settings: dict[str, Any] = {"past_key_values": self._cache, "use_cache": True}
        keep = keep.to(tokens.device)
        if self._keeps:
            settings["logits_to_keep"] = keep
        with evaluating(self.model), _tolerating(self.model, self.tolerance):
            outputs = self.model(tokens, **settings)
        self._cache = outputs.past_key_values
        return outputs.logits if self._keeps else outputs.logits[:, keep]


def read_rows(
    model: PreTrainedModel,
    rows: Tensor,
    asked: Sequence[int],
    *,
    extra: int = 0,
    memory: int = MEMORY,
    tolerance: float | None = None,
    tell: Callable[[float], None] | None = None,
) -> Iterator["Rows"]:
    """Read rows [N, n]: short ones together, long ones one by one and what they share only once.

    Logits are those after the indices `asked`. The reader has room for `extra` further tokens, and
    `tell` hears after every chunk how much work it was, as `reading_work` counts it.
    """
    size, width = rows.shape[1], _width(model)

    def told(batch: int) -> Tell:
        return lambda start, stop: tell(batch * _work(start, stop, width)) if tell else None

    settings: dict[str, Any] = {"tokens": size + extra, "memory": memory, "tolerance": tolerance}
    together = TOGETHER // size
    if together > 1:
        for start in range(0, len(rows), together):
            some = list(range(start, min(start + together, len(rows))))
            reader = Reader(model, batch=len(some), tell=told(len(some)), **settings)
            yield Rows(some, reader.logits(rows[some], asked), reader)
        return
    reader = Reader(model, batch=1, tell=told(1), **settings)
    for row, shared in _turns(rows, asked):
        shared = reader.rewind(shared)
        rest = [index - shared for index in asked]
        yield Rows([row], reader.logits(rows[row : row + 1, shared:], rest), reader)


def reading_work(model: PreTrainedModel, rows: Tensor, asked: Sequence[int]) -> float:
    """All that `read_rows` will tell about these rows."""
    size, width = rows.shape[1], _width(model)
    if TOGETHER // size > 1:
        return len(rows) * _work(0, size, width)
    return sum(_work(shared, size, width) for _, shared in _turns(rows, asked))


def check_tolerance(model: PreTrainedModel, tolerance: float | None) -> None:
    if tolerance is None:
        return
    if model.config.model_type != "bayesattn" or model.device.type != "cpu":
        raise ValueError(
            "tolerance leaves out keys in models of bayesattn on a CPU only; do without it here"
        )
    if not 0 < tolerance < 1:
        raise ValueError(f"tolerance is a share of the posterior, between 0 and 1, not {tolerance}")


def _turns(rows: Tensor, asked: Sequence[int]) -> list[tuple[int, int]]:
    """Rows in an order in which each shares much with the one before, and how many tokens."""
    order = sorted(range(len(rows)), key=lambda row: rows[row].numpy().tolist())
    shared = [_common(rows[row], rows[after]) for row, after in pairwise(order)]
    return [(row, min(count, *asked)) for row, count in zip(order, [0, *shared], strict=True)]


def _work(start: int, stop: int, width: int) -> float:
    """Of reading tokens start .. stop-1: each attends to those before it, and passes the layers."""
    return (stop - start) * ((start + stop) / 2 + width)


def _width(model: PreTrainedModel) -> int:
    """With so many tokens before it, a token's attention costs as much as its matrices."""
    return 3 * getattr(config_of(model), "hidden_size", 1024)


def _common(a: Tensor, b: Tensor) -> int:
    different = (a != b).nonzero()
    return int(different[0]) if len(different) else len(a)


def _make_cache(model: PreTrainedModel, tokens: int) -> Cache | None:
    """Room for the prompt; None leaves the cache to models that keep more than keys and values."""
    config = config_of(model)
    if not set(getattr(config, "layer_types", None) or _PLAIN) <= _PLAIN:
        return None
    return Room(windows(config), tokens)


@contextmanager
def _tolerating(model: PreTrainedModel, tolerance: float | None) -> Generator[None]:
    if tolerance is None:
        yield
        return
    config: Any = model.config
    before = config.tolerance
    config.tolerance = tolerance
    try:
        yield
    finally:
        config.tolerance = before
