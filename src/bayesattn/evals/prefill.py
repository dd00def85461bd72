"""Long prompts through any causal LM: in chunks, with a cache, in bounded memory.

    reader = Reader(model, batch=1, tokens=65_536)
    logits = reader.logits(prompt, asked=[65_535])      # [1, 1, vocabulary]

Tokens that were read stay in the cache. `rewind` goes back to an earlier place, so prompts with the
same beginning share it. bayesattn models use the strided kernel; with `tolerance` they skip keys
that provably hold less than this share of the posterior. The last layer computes only positions
whose logits are needed.
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

TOGETHER = 8192  # number of tokens of short sequences that are read at once
_PLAIN = {"full_attention", "sliding_attention", "chunked_attention"}


Tell = Callable[[int, int], None]


class Piece(NamedTuple):
    """Logits of one chunk."""

    asked: Tensor
    """[k] indices in the tokens of the call of `read`."""
    logits: Tensor
    """[B, k, vocabulary] logits of the token after each index."""


class Rows(NamedTuple):
    """Some of many sequences, after reading."""

    indices: list[int]
    logits: Tensor
    """[B, k, vocabulary] logits after the requested tokens."""
    reader: "Reader"
    """Reads on from there; it is rewound automatically for the next rows."""


class Reader:
    """Reads sequences into a cache, chunk by chunk.

    Args:
        model: any Hugging Face causal LM; it is restored after every chunk.
        batch: number of sequences read together.
        tokens: largest number of tokens of each sequence in the cache.
        every: logits are needed after every token, not after a few.
        memory: bytes that reading may take beyond the model.
        tolerance: largest share of the posterior that attention may skip; for bayesattn models on
            a CPU.
        tell: called after every chunk with the numbers of tokens in the cache before and after it.
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
        """Read [B, n] further tokens; logits at the indices `asked`, by default everywhere.

        Yields every chunk, also those without logits. Chunks are read only as the iterator
        advances.
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
        """Read [B, n] further tokens; logits [B, k, vocabulary] after the tokens `asked`."""
        return torch.cat([piece.logits for piece in self.read(tokens, asked)], dim=1)

    def rewind(self, length: int) -> int:
        """Drop all but the first `length` tokens, or fewer if need be; returns how many stay."""
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
        with evaluating(self.model), _with_tolerance(self.model, self.tolerance):
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
    """Read rows [N, n]: short rows together, long rows one by one with common beginnings once.

    Logits are those after the indices `asked`. The reader has room for `extra` further tokens.
    `tell` is called after every chunk with its work, in units of `reading_work`.
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
    for row, shared in _reading_order(rows, asked):
        shared = reader.rewind(shared)
        rest = [index - shared for index in asked]
        yield Rows([row], reader.logits(rows[row : row + 1, shared:], rest), reader)


def reading_work(model: PreTrainedModel, rows: Tensor, asked: Sequence[int]) -> float:
    """The total work that `read_rows` reports for these rows."""
    size, width = rows.shape[1], _width(model)
    if TOGETHER // size > 1:
        return len(rows) * _work(0, size, width)
    return sum(_work(shared, size, width) for _, shared in _reading_order(rows, asked))


def check_tolerance(model: PreTrainedModel, tolerance: float | None) -> None:
    if tolerance is None:
        return
    if model.config.model_type != "bayesattn" or model.device.type != "cpu":
        raise ValueError(
            "tolerance skips keys in models of bayesattn on a CPU only; leave it out here"
        )
    if not 0 < tolerance < 1:
        raise ValueError(f"tolerance is a share of the posterior, between 0 and 1, not {tolerance}")


def _reading_order(rows: Tensor, asked: Sequence[int]) -> list[tuple[int, int]]:
    """Rows in an order with long common beginnings, and the number of common tokens."""
    order = sorted(range(len(rows)), key=lambda row: rows[row].numpy().tolist())
    shared = [_common_prefix(rows[row], rows[after]) for row, after in pairwise(order)]
    return [(row, min(count, *asked)) for row, count in zip(order, [0, *shared], strict=True)]


def _work(start: int, stop: int, width: int) -> float:
    """Work of reading tokens start .. stop-1: attention to earlier tokens, and all layers."""
    return (stop - start) * ((start + stop) / 2 + width)


def _width(model: PreTrainedModel) -> int:
    """Number of earlier tokens at which attention costs as much as the matrices of a token."""
    return 3 * getattr(config_of(model), "hidden_size", 1024)


def _common_prefix(a: Tensor, b: Tensor) -> int:
    different = (a != b).nonzero()
    return int(different[0]) if len(different) else len(a)


def _make_cache(model: PreTrainedModel, tokens: int) -> Cache | None:
    """A cache for the prompt; None for models whose cache has more than keys and values."""
    config = config_of(model)
    if not set(getattr(config, "layer_types", None) or _PLAIN) <= _PLAIN:
        return None
    return Room(windows(config), tokens)


@contextmanager
def _with_tolerance(model: PreTrainedModel, tolerance: float | None) -> Generator[None]:
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
