"""Means over seeds with Student's t: on the scale of the effect, on logs, of paired proportions.

With n seeds of mean m and SD s the interval is m ± t(n - 1) · s / √n.

Seeds that agree exactly have s = 0, and t would be sure of anything. Where values can only change
in steps, s is taken to be at least half a step, the largest SD of a number that falls between two
neighbouring ones. Of proportions the trials of a seed tell how much it varies at least. Elsewhere
seeds that agree to nine digits say nothing of how much they vary: there is no interval, and no p.
"""

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from bayesattn.verdicts.values import Array

SAME = 1e-9
"""Seeds closer than this, relative to the largest, are equal: what differs is rounding."""


@cache
def special() -> Any:
    """scipy.special, which few commands need: imported when it is."""
    return import_module("scipy.special")


@dataclass(frozen=True)
class Mean:
    """Means [studies] on the scale that t is used on, and how they are told."""

    mean: Array
    error: Array
    """Standard errors; NaN where seeds say nothing of how much they vary."""
    seeds: int
    logs: bool = False
    least: float = -np.inf
    most: float = np.inf

    @property
    def value(self) -> Array:
        return np.exp(self.mean) if self.logs else self.mean

    def interval(self, level: float) -> tuple[Array, Array]:
        """Both ends of the two-sided interval of this level, inside what is possible."""
        half = special().stdtrit(self.seeds - 1, (1 + level) / 2) * self.error
        low, high = self.mean - half, self.mean + half
        if self.logs:
            with np.errstate(over="ignore"):
                low, high = np.exp(low), np.exp(high)
        return np.clip(low, self.least, self.most), np.clip(high, self.least, self.most)

    def above(self, limit: float) -> Array:
        """P(a mean so high), were `limit` the truth."""
        return special().stdtr(self.seeds - 1, -self.distance(limit) / self.error)

    def below(self, limit: float) -> Array:
        """P(a mean so low), were `limit` the truth."""
        return special().stdtr(self.seeds - 1, self.distance(limit) / self.error)

    def distance(self, limit: float) -> Array:
        """From the limit to the mean, on the scale of `error`."""
        return self.mean - (np.log(limit) if self.logs else limit)


def of_numbers(effects: Array, *, logs: bool, resolution: float = 0.0) -> Mean:
    """Mean of effects [studies, seeds], or with `logs` their geometric mean.

    Args:
        effects: one number for each seed.
        logs: whether t is used on logarithms; effects must then be positive.
        resolution: the step in which a number can change, on the scale that t is used on.
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
    return Mean(scaled.mean(axis=-1), error, count, logs, least=0.0 if logs else -np.inf)


def of_pairs(counts: Array) -> Mean:
    """First minus second proportion, seed by seed, of counts [studies, seeds, 2, 2].

    The variance between seeds is at least what the trials cause by themselves, the mean over seeds
    of p(1 - p)/n + q(1 - q)/m, each share with half a success and half a failure added.
    """
    successes, trials = counts[..., 0], counts[..., 1]
    shares = successes / trials
    smoothed = (successes + 0.5) / (trials + 1)
    noise = (smoothed * (1 - smoothed) / trials).sum(axis=-1).mean(axis=-1)
    differences = shares[..., 0] - shares[..., 1]
    count = differences.shape[-1]
    between = differences.var(axis=-1, ddof=1) if count > 1 else np.full(len(counts), np.nan)
    error = np.sqrt(np.maximum(between, noise) / count)
    return Mean(differences.mean(axis=-1), error, count, least=-1.0, most=1.0)
