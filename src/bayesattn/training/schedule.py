"""Functions of the step number alone: learning rate, seeds and steps of checkpoints.

The step number determines the data of a step. torch's CPU generator uses only the low 32 bits of a
seed, so hashed seeds would give two steps the same batch sooner or later. Instead, the step number
goes through a bijection of 31 bits, so no two steps of a run share a seed. Seeds of evaluations
have the highest of the 32 bits set and seeds of trainings do not, so no training step uses the data
of an evaluation.
"""

import hashlib
import math
from typing import Literal

WATCH_SEED = 7_000_000_001
"""Seed of the sequences that a training evaluates while it runs, for example to stop early."""
MASK = 2**31 - 1


def warmup_stable_decay(
    step: int, steps: int, warmup: float, decay: float, floor: float = 0.0
) -> float:
    """Factor of the learning rate at `step` (0-based) of `steps`.

    min((step + 1) / W, 1, floor + (1 - floor) (steps - step) / D), W = warmup · steps,
    D = decay · steps

    The factor is never 0, neither at the first step nor at the last.
    """
    rising = (step + 1) / max(warmup * steps, 1)
    falling = floor + (1 - floor) * ((steps - step) / max(decay * steps, 1))
    return min(rising, 1.0, falling)


def warmup_cosine(step: int, steps: int, warmup: float, floor: float = 0.0) -> float:
    """Factor of the learning rate at `step` (0-based) of `steps`.

    min((step + 1) / W, floor + (1 - floor) (1 + cos(π (step - W) / (steps - W))) / 2), W as in
    `warmup_stable_decay`. The cosine begins at the end of the rise, and would reach the floor one
    step after the last.
    """
    rise = warmup * steps
    rising = (step + 1) / max(rise, 1)
    passed = max(step - rise, 0) / max(steps - rise, 1)
    return min(rising, floor + (1 - floor) * (1 + math.cos(math.pi * passed)) / 2)


def evaluation_interval(steps: int) -> int:
    """Steps between evaluations: about twenty evaluations, at least fifty steps apart."""
    return max(50, math.ceil(steps / 20))


def checkpoint_steps(steps: int) -> list[int]:
    """Steps of the checkpoints for studying a training, from 0 to `steps`.

    Every 100 steps to 1,000, every 500 to 5,000, every 1,000 to 10,000, then every 5,000. Trainings
    shorter than 5,000 steps get as many intervals as one of 5,000, scaled down.
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

    "data" is for the batch, "noise" for random numbers of the model, such as dropout.
    """
    digest = hashlib.sha256(f"{purpose} {seed}".encode()).digest()
    start = int.from_bytes(digest[:4], "little")
    return _mix((start + step * processes + rank) & MASK)


def _mix(x: int) -> int:
    """A bijection of 31 bits: odd multiplications and invertible shifts."""
    x = (x * 0x45D9F3B) & MASK
    x ^= x >> 16
    x = (x * 0x119DE1F3) & MASK
    return x ^ (x >> 15)
