"""A proportion over seeds that differ: beta-binomial, seeds are clusters.

Seed k has a probability q_k ~ Beta of mean μ and variance ρ μ(1 - μ); x_k ~ Binomial(n_k, q_k).
Priors: Jeffreys' for μ, which is uniform in θ with μ = sin² θ, and uniform in √ρ, the SD between
seeds in units of √μ(1 - μ), up to `WIDEST`. The interval is that of the posterior of μ. So

    30 seeds of one trial, all right    [0.92, 1] at 95 %, Jeffreys' interval: ρ has no effect
    3 seeds of ten trials, all right    wider: seeds that agree may be lucky seeds

The posterior is summed on a grid: first on a coarse one, then on a fine one where it has mass.
"""

from dataclasses import dataclass

import numpy as np

from bayesattn.verdicts.means import special
from bayesattn.verdicts.values import Array

WIDEST = 0.8
"""Largest √ρ, so ρ is at most 0.64; at ρ = 1 each seed is all right or all wrong."""
NODES = 16
COARSE, FINE = 64, 256
NOTHING = 60.0
"""Values of μ that are e^60 times less likely than the most likely one are left out."""


@dataclass(frozen=True)
class Proportion:
    """Posteriors [studies] of μ, as masses of cells of a grid in θ."""

    value: Array
    edges: Array
    """[cells + 1] edges of the cells in θ."""
    chance: Array
    """[studies, cells + 1]: P(θ is below an edge)."""

    def interval(self, level: float) -> tuple[Array, Array]:
        """Ends of the equal-tailed interval; 0 if no trial is right, 1 if every trial is."""
        low, high = self._quantile((1 - level) / 2), self._quantile((1 + level) / 2)
        return np.where(self.value == 0, 0.0, low), np.where(self.value == 1, 1.0, high)

    @property
    def error(self) -> Array:
        """SD of the posterior."""
        middle = np.sin((self.edges[1:] + self.edges[:-1]) / 2) ** 2
        mass = np.diff(self.chance, axis=-1)
        return np.sqrt(np.maximum(mass @ middle**2 - (mass @ middle) ** 2, 0.0))

    def distance(self, limit: float) -> Array:
        """Distance from the limit to the proportion."""
        return self.value - limit

    def _quantile(self, share: float) -> Array:
        after = np.clip((self.chance < share).sum(axis=-1), 1, len(self.edges) - 1)
        row = np.arange(len(after))
        start, end = self.chance[row, after - 1], self.chance[row, after]
        part = (share - start) / (end - start)
        angle = (1 - part) * self.edges[after - 1] + part * self.edges[after]
        return np.sin(angle) ** 2


@dataclass(frozen=True)
class Difference:
    """First minus second proportion [studies] of the same seeds.

    The interval comes from the ends of both intervals (Zou and Donner 2008): with
    a = first - its low end and b = the second's high end - second,

        low = first - second - √(a² + b² - 2 r a b)

    where r, from 0 to 1, is the correlation of the two proportions over seeds.
    """

    first: Proportion
    second: Proportion
    together: Array

    @property
    def value(self) -> Array:
        return self.first.value - self.second.value

    def interval(self, level: float) -> tuple[Array, Array]:
        """Both ends of the two-sided interval of this level, inside [-1, 1]."""
        (low, high), (least, most) = self.first.interval(level), self.second.interval(level)
        down = self._joined(self.first.value - low, most - self.second.value)
        up = self._joined(high - self.first.value, self.second.value - least)
        return np.maximum(self.value - down, -1.0), np.minimum(self.value + up, 1.0)

    @property
    def error(self) -> Array:
        """Standard error."""
        return self._joined(self.first.error, self.second.error)

    def distance(self, limit: float) -> Array:
        """Distance from the limit to the difference."""
        return self.value - limit

    def _joined(self, one: Array, other: Array) -> Array:
        one, other = np.maximum(one, 0.0), np.maximum(other, 0.0)
        square = one**2 + other**2 - 2 * self.together * one * other
        return np.sqrt(np.maximum(square, 0.0))


def of_counts(counts: Array) -> Proportion:
    """Posterior of μ from counts [studies, seeds, 2] of successes and trials."""
    coarse = np.linspace(0, np.pi / 2, COARSE + 1)
    heights = _log_posterior(counts, coarse)
    peaks = heights.max(axis=-1, keepdims=True)
    (seen,) = np.nonzero((heights > peaks - NOTHING).any(axis=0))
    edges = np.linspace(coarse[max(seen[0] - 1, 0)], coarse[min(seen[-1] + 2, COARSE)], FINE + 1)
    heights = _log_posterior(counts, edges)
    mass = np.exp(heights - heights.max(axis=-1, keepdims=True))
    chance = np.concatenate([np.zeros((len(mass), 1)), mass.cumsum(axis=-1)], axis=-1)
    value = counts[..., 0].sum(axis=-1) / counts[..., 1].sum(axis=-1)
    return Proportion(value, edges, chance / chance[:, -1:])


def of_pairs(counts: Array) -> Difference:
    """First minus second of counts [studies, seeds, 2, 2]."""
    first, second = of_counts(counts[..., 0, :]), of_counts(counts[..., 1, :])
    return Difference(first, second, _correlation_bound(counts[..., 0], counts[..., 1]))


def _correlation_bound(successes: Array, trials: Array) -> Array:
    """Lower bound of the correlation [studies] of two shares over n seeds.

    tanh(artanh r - 1.645/√(n - 3)); the true correlation is below it in 5 % of cases. It is at
    least 0, and at most the share of variance that is not binomial: the binomial part, the mean of
    p(1 - p)/trials, is independent between the two.
    """
    count = successes.shape[1]
    if count < 4:
        return np.zeros(len(successes))
    shares = successes / trials
    away = shares - shares.mean(axis=1, keepdims=True)
    spread = (away**2).sum(axis=1)
    vary = (spread > 0).all(axis=-1)
    spread[~vary] = 1.0
    alike = away.prod(axis=-1).sum(axis=1) / np.sqrt(spread.prod(axis=-1))
    lowered = np.arctanh(np.clip(alike, 0.0, 1 - 1e-12)) - 1.645 / np.sqrt(count - 3)
    smoothed = (successes + 0.5) / (trials + 1)
    chance = (smoothed * (1 - smoothed) / trials).mean(axis=1)
    shared = np.maximum(1 - chance / (spread / (count - 1)), 0.0)
    together = np.minimum(np.tanh(np.maximum(lowered, 0.0)), np.sqrt(shared.prod(axis=-1)))
    return np.where(vary, together, 0.0)


def _log_posterior(counts: Array, edges: Array) -> Array:
    """[studies, cells]: log ∫ P(counts | θ, ρ) d√ρ at the middle of each cell."""
    kinds, which = np.unique(counts.reshape(-1, 2), axis=0, return_inverse=True)
    studies, seeds = counts.shape[:2]
    often = np.zeros((studies, len(kinds)))
    row = np.indices((studies, seeds))[0]
    np.add.at(often, (row.reshape(-1), which.reshape(-1)), 1.0)
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    rho = (WIDEST * (nodes + 1) / 2) ** 2
    mean = np.sin((edges[1:] + edges[:-1]) / 2) ** 2
    table = _log_likelihood(kinds, mean, rho)
    joint = (often @ table.reshape(len(kinds), -1)).reshape(studies, len(mean), NODES)
    peak = joint.max(axis=-1, keepdims=True)
    return peak[..., 0] + np.log(np.exp(joint - peak) @ weights)


def _log_likelihood(kinds: Array, mean: Array, rho: Array) -> Array:
    """[kinds, means, ρ]: log of the beta-binomial probability, up to a constant of each kind."""
    log_gamma = special().gammaln
    size = 1 / rho - 1
    right, wrong = mean[:, None] * size, (1 - mean)[:, None] * size
    successes, trials = kinds[:, 0, None, None], kinds[:, 1, None, None]
    return (
        log_gamma(right + successes)
        - log_gamma(right)
        + log_gamma(wrong + trials - successes)
        - log_gamma(wrong)
        - log_gamma(size + trials)
        + log_gamma(size)
    )
