"""An endless shuffled stream in which every window is known by its number alone.

An epoch visits every block of a corpus once, in an order of its own and with boundaries shifted by
an amount of its own. The order is a Feistel cipher of the block number: a bijection that needs no
memory, however large the corpus.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

ROUNDS = 4


def window_starts(
    tokens: int, length: int, indices: NDArray[np.int64], seed: int
) -> NDArray[np.int64]:
    """[B] first token of windows number `indices` [B] of a corpus with at least `length` tokens."""
    blocks = max(1, (tokens - length + 1) // length)  # so that any shift leaves room for all
    epoch, position = np.divmod(indices, blocks)
    digest = hashlib.sha256(f"windows {seed}".encode()).digest()
    key = _mix(epoch.astype(np.uint64) + np.uint64(int.from_bytes(digest[:8], "little")))
    shift = _mix(~key) % np.uint64(tokens - blocks * length + 1)
    return shift.astype(np.int64) + permute(position, blocks, key) * length


def permute(position: NDArray[np.int64], size: int, key: NDArray[np.uint64]) -> NDArray[np.int64]:
    """[B] where `position` of 0 … size-1 goes; for each key, a bijection."""
    half = max(1, -(-(size - 1).bit_length() // 2))
    found = _encipher(position.astype(np.uint64), half, key)
    # The cipher permutes a power of 4; walking on until we are back inside permutes the inside.
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
