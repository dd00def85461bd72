"""What depends on the step number alone: learning rate, seeds and moments to remember.

The data position of a run is its step, and nothing else. torch's CPU generator keeps only the low
32 bits of a seed, so hashing would sooner or later give two steps the same batch. Instead the
counter of steps goes through a bijection of 31 bits: no two steps of a run share a seed. Seeds of
evaluations have the highest of the 32 bits set, training seeds never: no step ever sees what an
evaluation asks.
"""

import hashlib
import math
from typing import Literal

WATCH_SEED = 7_000_000_001
"""Sequences that a training looks at while it runs, for example to stop early."""
MASK = 2**31 - 1


def warmup_stable_decay(
    step: int, steps: int, warmup: float, decay: float, floor: float = 0.0
) -> float:
    """Factor of the learning rate at `step` (0-based) of `steps`.

    min((step + 1) / W, 1, floor + (1 - floor) (steps - step) / D), W = warmup · steps,
    D = decay · steps

    The first step already moves and the last one still does: neither factor is ever 0.
    """
    rising = (step + 1) / max(warmup * steps, 1)
    falling = floor + (1 - floor) * ((steps - step) / max(decay * steps, 1))
    return min(rising, 1.0, falling)


def warmup_cosine(step: int, steps: int, warmup: float, floor: float = 0.0) -> float:
    """Factor of the learning rate at `step` (0-based) of `steps`.

    min((step + 1) / W, floor + (1 - floor) (1 + cos(π (step - W) / (steps - W))) / 2), W as above;
    the cosine begins when the rise has ended, and would reach the floor one step after the last.
    """
    rise = warmup * steps
    rising = (step + 1) / max(rise, 1)
    passed = max(step - rise, 0) / max(steps - rise, 1)
    return min(rising, floor + (1 - floor) * (1 + math.cos(math.pi * passed)) / 2)


def evaluation_interval(steps: int) -> int:
    """Steps between evaluations: about twenty in all, but none before fifty steps have passed."""
    return max(50, math.ceil(steps / 20))


def checkpoint_steps(steps: int) -> list[int]:
    """Steps whose checkpoints tell the story of a training, from 0 to `steps`.

    Each 100 to 1000, 500 to 5000, 1000 to 10 000, 5000 after; trainings shorter than 5000 steps get
    the same number of intervals as one of 5000, scaled down.
    """
    scale = min(1.0, steps / 5000)
    horizon = max(steps, 5000)
    marks = [
        *range(0, 1000, 100),
        *range(1000, 5000, 500),
        *range(5000, 10_000, 1000),
        *range(10_000, horizon, 5000),
    ]
    scaled = {round(mark * scale) for mark in marks if mark < horizon}
    return sorted({step for step in scaled if step < steps} | {steps})


def step_seed(
    seed: int,
    step: int,
    rank: int = 0,
    processes: int = 1,
    purpose: Literal["data", "noise"] = "data",
) -> int:
    """Seed of one step of one process: mix(hash(purpose, seed) + step · processes + rank).

    "data" is for the batch, "noise" for what the model draws itself, such as dropout.
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
