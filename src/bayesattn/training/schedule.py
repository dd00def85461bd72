"""What depends on the step number alone: learning rate and moments to remember."""

import math
from typing import Literal


def warmup_stable_decay(
    step: int, steps: int, warmup: float, decay: float, floor: float = 0.0
) -> float:
    """Factor of the learning rate at `step` (0-based) of `steps`.

    min((step + 1) / W, 1, floor + (1 - floor) (steps - step) / D), W = warmup · steps,
    D = decay · steps

    The first step already moves and the last one still does: neither factor is ever 0.

    Args:
        step: updates made so far.
        steps: updates in all.
        warmup: share of the steps in which it rises.
        decay: share of the steps, at the end, in which it falls.
        floor: what it falls to.
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


def checkpoint_steps(steps: int, style: Literal["sparse", "dense"] = "dense") -> list[int]:
    """Steps whose checkpoints tell the story of a training, from 0 to `steps`.

    dense: each 100 to 1000, 500 to 5000, 1000 to 10 000, 5000 after; trainings shorter than 5000
    steps get the same number of intervals as one of 5000, scaled down. sparse: 0 and doublings of
    100, likewise scaled, for those who only want the outline.
    """
    if style not in ("sparse", "dense"):
        raise ValueError(f"style must be sparse or dense, not {style!r}.")
    scale = min(1.0, steps / 5000)
    horizon = max(steps, 5000)
    if style == "sparse":
        marks = [0, *(100 * 2**k for k in range(horizon.bit_length()) if 100 * 2**k < horizon)]
    else:
        marks = [
            *range(0, 1000, 100),
            *range(1000, 5000, 500),
            *range(5000, 10_000, 1000),
            *range(10_000, horizon, 5000),
        ]
    scaled = {round(mark * scale) for mark in marks if mark < horizon}
    return sorted({step for step in scaled if step < steps} | {steps})
