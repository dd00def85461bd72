"""The bijection, one sequence at a time."""

import numpy as np

from bayesattn.benchmarks.per_sample.base import Array, PerSample, Sample


class PerSampleBijection(PerSample):
    """Keys and values of a random permutation; unseen values are equally likely."""

    def sample(self, rng: np.random.Generator) -> Sample:
        """One sequence with its exact posterior."""
        inputs, values = self.draw(rng)
        return Sample(inputs, self.posterior(inputs), values)

    def draw(self, rng: np.random.Generator) -> tuple[Array, Array]:
        """Inputs and labels without the posterior, which training on labels does not need."""
        alphabet, length = self.tunnel.alphabet, self.tunnel.length
        permutation = rng.permutation(alphabet)
        if self.tunnel.replacement:
            keys = rng.integers(alphabet, size=length)
        else:
            keys = rng.permutation(alphabet)[:length]
        values = permutation[keys]
        inputs = np.empty(2 * length, dtype=np.int64)
        inputs[0::2] = keys
        inputs[1::2] = values + alphabet
        return inputs[:-1], values

    def posterior(self, inputs: Array) -> Array:
        """[S, outcomes] from the inputs alone."""
        alphabet = self.tunnel.alphabet
        keys, values = inputs[0::2].tolist(), (inputs[1::2] - alphabet).tolist()
        posterior = np.zeros((len(keys), alphabet))
        seen: dict[int, int] = {}
        for step, key in enumerate(keys):
            if key in seen:
                posterior[step, seen[key]] = 1.0
            else:
                used = set(seen.values())
                unseen = [value for value in range(alphabet) if value not in used]
                posterior[step, unseen] = 1.0 / len(unseen)
            if step < len(values):
                seen[key] = values[step]
        return posterior
