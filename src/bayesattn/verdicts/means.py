"""Means over seeds with Student's t: on the scale of the effect, or on logs.

With n seeds of mean m and SD s the interval is m ± t(n - 1) · s / √n.

Seeds that agree exactly have s = 0, and t would give an interval of width 0. If values change in
steps, s is at least half a step, the largest SD of a number that falls between two neighbouring
values. Otherwise seeds that agree to nine digits do not show how much they vary: there is no
interval and no p.
"""

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from bayesattn.verdicts.values import Array

FARTHEST = 700.0
"""Largest logarithm; the exponential of larger ones is infinite."""
SAME = 1e-9
"""Relative difference below which seeds count as equal: rounding."""


@cache
def special() -> Any:
    """scipy.special, imported on first use, because few commands need it."""
    return import_module("scipy.special")


@dataclass(frozen=True)
class Mean:
    """Means [studies] on the scale of the t distribution, and on the scale of the effect."""

    mean: Array
    error: Array
    """Standard errors; NaN if equal seeds do not show how much they vary."""
    seeds: int
    logs: bool

    @property
    def value(self) -> Array:
        return np.exp(self.mean) if self.logs else self.mean

    def interval(self, level: float) -> tuple[Array, Array]:
        """Both ends of the two-sided interval of this level."""
        half = special().stdtrit(self.seeds - 1, (1 + level) / 2) * self.error
        low, high = self.mean - half, self.mean + half
        if not self.logs:
            return low, high
        return np.exp(low), np.exp(np.minimum(high, FARTHEST))

    def distance(self, limit: float) -> Array:
        """Distance from the limit to the mean, on the scale of `error`."""
        return self.mean - (np.log(limit) if self.logs else limit)


def of_numbers(effects: Array, *, logs: bool, resolution: float = 0.0) -> Mean:
    """Mean of effects [studies, seeds], or with `logs` their geometric mean.

    Args:
        effects: one number for each seed.
        logs: whether t is used on logarithms; then effects must be positive.
        resolution: smallest step of a number, on the scale of the t distribution.
    """
    if logs and not (effects > 0).all():
        raise ValueError("effects on the log scale must be positive: use identity for differences")
    scaled = np.log(effects) if logs else effects
    count = effects.shape[-1]
    spread = scaled.std(axis=-1, ddof=1) if count > 1 else np.full(len(effects), np.nan)
    largest = 1.0 if logs else np.abs(effects).max(axis=-1)
    equal = np.ptp(scaled, axis=-1) <= SAME * largest
    floored = np.maximum(np.where(equal, 0.0, spread), resolution / 2)
    error = np.where(floored > 0, floored, np.nan) / np.sqrt(count)
    return Mean(scaled.mean(axis=-1), error, count, logs)
