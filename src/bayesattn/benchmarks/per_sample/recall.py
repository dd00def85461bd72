"""Recall, one sequence at a time."""

import numpy as np

from bayesattn.benchmarks.per_sample.base import Array, PerSample, Sample


class PerSampleRecall(PerSample):
    """Stored pairs, filler, queries: the answer was shown once."""

    PAD, STORE, FILLER, QUERY, SEP, KEYS = 0, 1, 2, 3, 4, 10

    def sample(self, rng: np.random.Generator) -> Sample:
        """One sequence with its exact posterior."""
        tunnel = self.tunnel
        keys = rng.permutation(tunnel.keys)[: tunnel.pairs].tolist()
        values = rng.permutation(tunnel.values)[: tunnel.pairs].tolist()
        asked = rng.integers(tunnel.pairs, size=tunnel.queries).tolist()
        tokens: list[int] = []
        for key, value in zip(keys, values, strict=True):
            tokens += [self.STORE, self.KEYS + key, self.SEP, self.KEYS + tunnel.keys + value]
        tokens += [self.FILLER] * tunnel.filler
        for number, pair in enumerate(asked):
            if number > 0:
                tokens += [self.FILLER] * (tunnel.filler // 2)
            tokens += [self.QUERY, self.KEYS + keys[pair], self.PAD]
        inputs = np.array(tokens, dtype=np.int64)
        return Sample(inputs, self.posterior(inputs), np.array([values[pair] for pair in asked]))

    def posterior(self, inputs: Array) -> Array:
        """[S, outcomes] from the inputs alone."""
        stored: dict[int, int] = {}
        answers: list[int] = []
        tokens = inputs.tolist()
        for position, token in enumerate(tokens):
            if token == self.STORE:
                stored[tokens[position + 1]] = tokens[position + 3]
            elif token == self.QUERY:
                answers.append(stored[tokens[position + 1]] - self.KEYS - self.tunnel.keys)
        posterior = np.zeros((len(answers), self.tunnel.values))
        posterior[np.arange(len(answers)), answers] = 1.0
        return posterior
