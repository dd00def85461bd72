"""Belief revision, one sequence at a time."""

import numpy as np

from bayesattn.benchmarks.per_sample.base import Array, PerSample, Sample
from bayesattn.benchmarks.per_sample.matrices import draw_row, read_rows


class PerSampleRevision(PerSample):
    """A hidden source, a matrix of what sources emit, and the product rule."""

    def sample(self, rng: np.random.Generator) -> Sample:
        """One sequence with its exact posterior."""
        tunnel = self.tunnel
        hypotheses, symbols = tunnel.hypotheses, tunnel.symbols
        emission = np.stack([draw_row(rng, symbols, tunnel) for _ in range(hypotheses)])
        source = rng.integers(hypotheses)
        evidence = rng.choice(symbols, size=tunnel.evidence, p=emission[source])
        before = hypotheses + tunnel.filler
        inputs = np.zeros((before + tunnel.evidence, 2 * symbols + hypotheses), np.float32)
        for hypothesis in range(hypotheses):
            inputs[hypothesis, :symbols] = np.log(emission[hypothesis])
            inputs[hypothesis, symbols + hypothesis] = 1.0
        for step, symbol in enumerate(evidence):
            inputs[before + step, symbols + hypotheses + symbol] = 1.0
        labels = np.full(tunnel.evidence, source)
        return Sample(inputs, self._product_rule(emission, evidence), labels)

    def posterior(self, inputs: Array) -> Array:
        """[S, outcomes] from the inputs alone."""
        hypotheses, symbols = self.tunnel.hypotheses, self.tunnel.symbols
        emission = read_rows(inputs[:hypotheses, :symbols], self.tunnel.grid)
        shown = inputs[hypotheses + self.tunnel.filler :, symbols + hypotheses :]
        return self._product_rule(emission, shown.argmax(1))

    def _product_rule(self, emission: Array, evidence: Array) -> Array:
        belief = np.full(len(emission), 1.0 / len(emission))
        posterior = np.empty((len(evidence), len(emission)))
        for step, symbol in enumerate(evidence):
            belief = belief * emission[:, symbol]
            belief = belief / belief.sum()
            posterior[step] = belief
        return posterior
