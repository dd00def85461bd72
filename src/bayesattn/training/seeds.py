"""Seeds by step number: the data position of a run is its step, and nothing else.

torch's CPU generator keeps only the low 32 bits of a seed, so hashing would sooner or later give
two steps the same batch. Instead the counter of steps goes through a bijection of 31 bits: no two
steps of a run share a seed. Seeds of evaluations have the highest of the 32 bits set, training
seeds never: no step ever sees what an evaluation asks.
"""

import hashlib
from typing import Literal

WATCH_SEED = 7_000_000_001
"""Sequences that a training looks at while it runs, for example to stop early."""
MASK = 2**31 - 1


def step_seed(
    seed: int,
    step: int,
    rank: int = 0,
    processes: int = 1,
    purpose: Literal["data", "noise"] = "data",
) -> int:
    """Seed of one step of one process: mix(hash(purpose, seed) + step · processes + rank).

    Args:
        seed: of the whole training.
        step: updates made so far.
        rank: of this process.
        processes: that train together.
        purpose: "data" for the batch, "noise" for what the model draws itself, such as dropout.
    """
    digest = hashlib.sha256(f"{purpose} {seed}".encode()).digest()
    start = int.from_bytes(digest[:4], "little")
    return _mix((start + step * processes + rank) & MASK)


def _mix(x: int) -> int:
    """A bijection of 31 bits: odd multiplications, and shifts that can be undone."""
    x = (x * 0x45D9F3B) & MASK
    x ^= x >> 16
    x = (x * 0x119DE1F3) & MASK
    return x ^ (x >> 15)
