"""The sticky chain, one sequence at a time."""

from typing import Any

import numpy as np

from bayesattn.benchmarks.per_sample.base import Array, PerSample, Sample
from bayesattn.benchmarks.per_sample.hmm import forward_filter


class PerSampleSticky(PerSample):
    """A path on a circle, seen through Gaussian noise, and the filter that predicts its next step.

    The tunnel's means are constants of the task; its transition matrix is made anew.
    """

    def __init__(self, tunnel: Any) -> None:
        super().__init__(tunnel)
        self.means: Array = tunnel.means.numpy()
        symbols = tunnel.symbols
        self.transition = np.zeros((symbols, symbols))
        for i in range(symbols):
            for j in range(symbols):
                if i != j:
                    self.transition[i, j] = 1.0 / min(abs(i - j), symbols - abs(i - j))
            self.transition[i] *= (1.0 - tunnel.stay) / self.transition[i].sum()
            self.transition[i, i] = tunnel.stay

    def sample(self, rng: np.random.Generator) -> Sample:
        """One sequence with its exact posterior."""
        tunnel = self.tunnel
        inputs = np.empty((tunnel.length, tunnel.width), np.float32)
        labels = np.empty(tunnel.length, np.int64)
        symbol = rng.integers(tunnel.symbols)
        for step in range(tunnel.length):
            noise = rng.standard_normal(tunnel.width, dtype=np.float32)
            inputs[step] = self.means[symbol] + np.float32(tunnel.noise) * noise
            symbol = rng.choice(tunnel.symbols, p=self.transition[symbol])
            labels[step] = symbol
        return Sample(inputs, self.posterior(inputs), labels)

    def posterior(self, inputs: Array) -> Array:
        """[S, outcomes] from the inputs alone."""
        means = self.means.astype(np.float64)
        likelihoods = np.empty((len(inputs), len(means)))
        for step, observed in enumerate(inputs.astype(np.float64)):
            squares = ((observed - means) ** 2).sum(1)
            if self.tunnel.noise == 0:
                likelihoods[step] = squares == squares.min()
            else:
                likelihoods[step] = np.exp(-(squares - squares.min()) / (2 * self.tunnel.noise**2))
        return forward_filter(self.transition, likelihoods) @ self.transition
