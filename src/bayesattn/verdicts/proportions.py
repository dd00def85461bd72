"""A proportion over seeds that differ: beta-binomial, seeds are clusters.

Seed k has its own chance q_k ~ Beta of mean μ and variance ρ μ(1 - μ); x_k ~ Binomial(n_k, q_k).
Priors: Jeffreys' for μ, which is uniform in θ with μ = sin² θ, and uniform in √ρ, the SD between
seeds in units of √μ(1 - μ), up to `WIDEST`. The interval is that of the posterior of μ. So

    30 seeds of one trial, all right    [0.92, 1] at 95 %, Jeffreys' interval: there is no ρ to find
    3 seeds of ten trials, all right    wider: seeds that agree may be lucky seeds

The posterior is summed on a grid, first a coarse one, then a fine one where it is not nothing.
"""

from dataclasses import dataclass

import numpy as np

from bayesattn.verdicts.means import special
from bayesattn.verdicts.values import Array

WIDEST = 0.8
"""Largest √ρ: seeds alike to 0.64, where 1 means that each is all right or all wrong."""
NODES = 16
COARSE, FINE = 96, 384
NOTHING = 60.0
"""What is e^60 times less likely than the most likely μ is left out."""
LEAST = 1e-15
"""No chance is told smaller than this: rounding could not tell it from 0."""


@dataclass(frozen=True)
class Proportion:
    """Posteriors [studies] of μ, as masses of cells of a grid in θ."""

    value: Array
    edges: Array
    """[cells + 1], of θ."""
    chance: Array
    """[studies, cells + 1]: P(θ is below an edge)."""
    seeds: int

    def interval(self, level: float) -> tuple[Array, Array]:
        """Ends of the equal-tailed interval; 0 if no trial is right, 1 if every trial is."""
        low = self._quantile((1 - level) / 2)
        high = self._quantile((1 + level) / 2)
        return np.where(self.value == 0, 0.0, low), np.where(self.value == 1, 1.0, high)

    def above(self, limit: float) -> Array:
        """P(μ is not above the limit)."""
        return np.where(self.value == 0, 1.0, self._below(limit))

    def below(self, limit: float) -> Array:
        """P(μ is not below the limit)."""
        return np.where(self.value == 1, 1.0, 1 - self._below(limit))

    @property
    def error(self) -> Array:
        """SD of the posterior."""
        middle = np.sin((self.edges[1:] + self.edges[:-1]) / 2) ** 2
        mass = np.diff(self.chance, axis=-1)
        return np.sqrt(np.maximum(mass @ middle**2 - (mass @ middle) ** 2, 0.0))

    def distance(self, limit: float) -> Array:
        """From the limit to the proportion."""
        return self.value - limit

    def _below(self, limit: float) -> Array:
        at = float(np.arcsin(np.sqrt(np.clip(limit, 0.0, 1.0))))
        after = int(np.clip(np.searchsorted(self.edges, at), 1, len(self.edges) - 1))
        start, end = self.edges[after - 1], self.edges[after]
        share = float(np.clip((at - start) / (end - start), 0, 1))
        inside = (1 - share) * self.chance[:, after - 1] + share * self.chance[:, after]
        return np.clip(inside, LEAST, 1 - LEAST)

    def _quantile(self, share: float) -> Array:
        inside = [float(np.interp(share, row, self.edges)) for row in self.chance]
        return np.sin(np.asarray(inside)) ** 2


def of_counts(counts: Array) -> Proportion:
    """Posterior of μ from counts [studies, seeds, 1, 2] of successes and trials."""
    successes, trials = counts[..., 0, 0], counts[..., 0, 1]
    coarse = np.linspace(0, np.pi / 2, COARSE + 1)
    heights = _log_posterior(counts[..., 0, :], coarse)
    peaks = heights.max(axis=-1, keepdims=True)
    (seen,) = np.nonzero((heights > peaks - NOTHING).any(axis=0))
    first, last = max(seen[0] - 1, 0), min(seen[-1] + 2, COARSE)
    edges = np.linspace(coarse[first], coarse[last], FINE + 1)
    heights = _log_posterior(counts[..., 0, :], edges)
    mass = np.exp(heights - heights.max(axis=-1, keepdims=True))
    chance = np.concatenate([np.zeros((len(mass), 1)), mass.cumsum(axis=-1)], axis=-1)
    value = successes.sum(axis=-1) / trials.sum(axis=-1)
    return Proportion(value, edges, chance / chance[:, -1:], counts.shape[1])


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
    """[kinds, means, ρ]: log of the beta-binomial chance, up to a constant of each kind."""
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
