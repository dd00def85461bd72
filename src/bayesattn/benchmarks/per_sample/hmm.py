"""The hidden Markov tunnel, one sequence at a time."""

import numpy as np

from bayesattn.benchmarks.per_sample.base import Array, PerSample, Sample
from bayesattn.benchmarks.per_sample.matrices import draw_row, read_rows


class PerSampleHMM(PerSample):
    """A hidden Markov chain with fresh matrices, and its forward filter."""

    def sample(self, rng: np.random.Generator) -> Sample:
        """One sequence with its exact posterior."""
        tunnel = self.tunnel
        transition = np.stack([draw_row(rng, tunnel.states, tunnel) for _ in range(tunnel.states)])
        emission = np.stack([draw_row(rng, tunnel.symbols, tunnel) for _ in range(tunnel.states)])
        states = np.empty(tunnel.length, dtype=np.int64)
        observed = np.empty(tunnel.length, dtype=np.int64)
        state = rng.integers(tunnel.states)
        for step in range(tunnel.length):
            states[step] = state
            observed[step] = rng.choice(tunnel.symbols, p=emission[state])
            state = rng.choice(tunnel.states, p=transition[state])
        inputs = self._encode(transition, emission, observed)
        return Sample(inputs, forward_filter(transition, emission[:, observed].T), states)

    def posterior(self, inputs: Array) -> Array:
        """[S, outcomes] from the inputs alone."""
        transition, emission, observed = self._decode(inputs)
        return forward_filter(transition, emission[:, observed].T)

    def _encode(self, transition: Array, emission: Array, observed: Array) -> Array:
        states, symbols = emission.shape
        if self.tunnel.header == "tokens":
            return self._encode_tokens(transition, emission, observed)
        features = np.zeros((2 * states + len(observed), 2 * states + 2 * symbols), np.float32)
        for state in range(states):
            features[state, :states] = np.log(transition[state])
            features[states + state, states : states + symbols] = np.log(emission[state])
            features[state, states + symbols + state] = 1.0
            features[states + state, states + symbols + state] = 1.0
        for step, symbol in enumerate(observed):
            features[2 * states + step, 2 * states + symbols + symbol] = 1.0
        return features

    def _decode(self, inputs: Array) -> tuple[Array, Array, Array]:
        states, symbols = self.tunnel.states, self.tunnel.symbols
        if self.tunnel.header == "tokens":
            return self._decode_tokens(inputs)
        transition = read_rows(inputs[:states, :states], self.tunnel.grid)
        emission = read_rows(
            inputs[states : 2 * states, states : states + symbols], self.tunnel.grid
        )
        observed = inputs[2 * states :, 2 * states + symbols :].argmax(1)
        return transition, emission, observed

    def _encode_tokens(self, transition: Array, emission: Array, observed: Array) -> Array:
        least, per_one = round(self.tunnel.min_prob / self.tunnel.grid), round(1 / self.tunnel.grid)
        first = per_one - least + 1  # [TRANS], [EMIT], [SEP], [OBS], then the symbols
        tokens = [first]
        tokens += [round(p * per_one) - least for p in transition.flatten().tolist()]
        tokens += [first + 1]
        tokens += [round(p * per_one) - least for p in emission.flatten().tolist()]
        tokens += [first + 2]
        for symbol in observed.tolist():
            tokens += [first + 3, first + 4 + symbol]
        return np.array(tokens, dtype=np.int64)

    def _decode_tokens(self, inputs: Array) -> tuple[Array, Array, Array]:
        states, symbols = self.tunnel.states, self.tunnel.symbols
        least, per_one = round(self.tunnel.min_prob / self.tunnel.grid), round(1 / self.tunnel.grid)
        emission_from = 2 + states * states
        observed_from = emission_from + states * symbols + 1
        transition = (inputs[1 : emission_from - 1] + least).reshape(states, states) / per_one
        emission = (inputs[emission_from : observed_from - 1] + least) / per_one
        observed = inputs[observed_from + 1 :: 2] - (per_one - least + 5)
        return transition, emission.reshape(states, symbols), observed


def forward_filter(transition: Array, likelihoods: Array) -> Array:
    """P(state_t | first t observations), [steps, states], from a uniform start."""
    steps, states = likelihoods.shape
    belief = np.full(states, 1.0 / states)
    posterior = np.empty((steps, states))
    for step in range(steps):
        if step > 0:
            belief = belief @ transition
        belief = belief * likelihoods[step]
        belief = belief / belief.sum()
        posterior[step] = belief
    return posterior
