"""Training sequences: windows of a corpus, some of them after a needle prompt.

Windows come from an endless shuffled stream, and their number alone determines them. An epoch
visits every block of a corpus once, in a new order and with newly shifted boundaries. The order is
a Feistel cipher of the block number: a bijection that needs no memory for a corpus of any size.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from bayesattn.corpora.needles import NeedleMaker
from bayesattn.corpora.store import Split, TokenStore
from bayesattn.corpora.text import CorpusError

ROUNDS = 4
"""Number of rounds of the cipher."""


@dataclass(frozen=True)
class Windows:
    """Sequences of packed documents."""

    tokens: Tensor
    """[B, L] int64."""
    documents: Tensor
    """[B, L] int64 documents, from 0 in each sequence: a token sees its own document only."""
    given: Tensor | None = None
    """[B, L] bool: unpredictable tokens, which are not targets."""

    @property
    def targets(self) -> Tensor:
        """[B, L - 1] whether the next token is a target; it is in the same document."""
        inside = self.documents[:, 1:] == self.documents[:, :-1]
        return inside if self.given is None else inside & ~self.given[:, 1:]

    def rows(self, rows: slice | Tensor) -> "Windows":
        return self._changed(lambda values: values[rows])

    def to(self, device: torch.device | str, non_blocking: bool = False) -> "Windows":
        return self._changed(lambda values: values.to(device, non_blocking=non_blocking))

    def _changed(self, change: Callable[[Tensor], Tensor]) -> "Windows":
        given = None if self.given is None else change(self.given)
        return Windows(change(self.tokens), change(self.documents), given)

    def __len__(self) -> int:
        return len(self.tokens)


def windows(
    store: TokenStore, split: Split, length: int, indices: Tensor, seed: int = 0
) -> Windows:
    """Windows number `indices` [B] of the shuffled stream of a corpus.

    The stream is endless. An index always gives the same window.
    """
    count = store.tokens(split)
    if length < 1:
        raise CorpusError(f"The length of a window must be 1 or more, not {length}.")
    if count < length:
        raise CorpusError(
            f"The corpus {store.source} has {count:,} {split} tokens, fewer than one window of "
            f"{length:,}: give more text or choose a shorter length."
        )
    starts = window_starts(count, length, indices.numpy(), seed)
    where = starts[:, None] + np.arange(length)
    tokens = torch.from_numpy(store.stream(split)[where].astype(np.int64))
    begins = tokens == store.start
    begins[:, 0] = False
    return Windows(tokens, begins.cumsum(1))


class Mixture:
    """Sequences of `length` tokens, a `share` of which begin with a needle prompt.

    A prompt is a separate document; text of the corpus fills the rest of the sequence. The first
    occurrence of a hidden value is `given`, not a target: unpredictable digits are noise, with
    which a model learns to copy later. The `seed` determines the order of the corpus. `maker` makes
    the prompts; it is None if the share is 0.
    """

    def __init__(
        self,
        store: TokenStore,
        maker: NeedleMaker | None,
        share: float,
        length: int,
        seed: int = 0,
    ) -> None:
        if not 0 <= share <= 1:
            raise CorpusError(f"The share of needles must lie between 0 and 1, not {share}.")
        if share and maker is None:
            raise CorpusError(f"A share of {share} needles needs a maker of needles.")
        self.store, self.maker, self.share = store, maker, share
        self.length, self.seed = length, seed
        # Refuse sizes that do not fit now, not at the first batch.
        windows(store, "train", length, torch.arange(1), seed)
        if share and maker is not None:
            maker.training(1, length, Generator().manual_seed(0))

    def batch(self, indices: Tensor, generator: Generator) -> Windows:
        """Windows number `indices` [B] of the corpus, some after a prompt; `generator` decides.

        Windows with equal cuts are next to each other, so attention computes them together without
        copies.
        """
        batch = self._sample(indices, generator)
        cuts = batch.documents.tolist()
        order = torch.tensor(sorted(range(len(cuts)), key=lambda row: cuts[row]))
        return batch.rows(order)

    def _sample(self, indices: Tensor, generator: Generator) -> Windows:
        text = windows(self.store, "train", self.length, indices, self.seed)
        if not self.share or self.maker is None:
            return text
        tokens, documents = text.tokens, text.documents
        chosen = torch.rand(len(indices), generator=generator) < self.share
        prompts, used, hidden = self.maker.training(int(chosen.sum()), self.length, generator)
        # The window moves back to make room for the prompt.
        position = torch.arange(self.length) - used[:, None]
        behind, inside = position.clamp(min=0), position < 0
        tokens[chosen] = torch.where(inside, prompts, tokens[chosen].gather(1, behind))
        later = documents[chosen].gather(1, behind) + 1
        documents[chosen] = later.masked_fill(inside, 0)
        given = torch.zeros_like(tokens, dtype=torch.bool)
        given[chosen] = hidden
        return Windows(tokens, documents, given)


def window_starts(
    tokens: int, length: int, indices: NDArray[np.int64], seed: int
) -> NDArray[np.int64]:
    """[B] first token of windows number `indices` [B] of a corpus with at least `length` tokens."""
    blocks = max(1, (tokens - length + 1) // length)  # every shift leaves room for all blocks
    epoch, position = np.divmod(indices, blocks)
    digest = hashlib.sha256(f"windows {seed}".encode()).digest()
    key = _mix(epoch.astype(np.uint64) + np.uint64(int.from_bytes(digest[:8], "little")))
    shift = _mix(~key) % np.uint64(tokens - blocks * length + 1)
    return shift.astype(np.int64) + permute(position, blocks, key) * length


def permute(position: NDArray[np.int64], size: int, key: NDArray[np.uint64]) -> NDArray[np.int64]:
    """[B] image of `position` in 0 … size-1; a bijection for each key."""
    half = max(1, -(-(size - 1).bit_length() // 2))
    found = _encipher(position.astype(np.uint64), half, key)
    # The cipher permutes a power of 4. Repeating it until the image is below `size` is a bijection.
    while (outside := found >= size).any():
        found[outside] = _encipher(found[outside], half, key[outside])
    return found.astype(np.int64)


def _encipher(value: NDArray[np.uint64], half: int, key: NDArray[np.uint64]) -> NDArray[np.uint64]:
    shift, mask = np.uint64(half), np.uint64(2**half - 1)
    left, right = value >> shift, value & mask
    for number in range(ROUNDS):
        noise = _mix(key + (right << np.uint64(3)) + np.uint64(number))
        left, right = right, left ^ (noise & mask)
    return (left << shift) | right


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64: every bit of x changes half the bits of the result."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
