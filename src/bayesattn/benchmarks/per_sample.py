"""The tunnels once more, one sequence at a time: natural loops, independent of the samplers.

Each class draws one sequence from a numpy generator, and finds the exact posterior of given inputs.
They are the oracles of the vectorised samplers in the tests, and what those are timed against.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]


class Sample(NamedTuple):
    """One sequence."""

    inputs: Array
    """[T] tokens or [T, features]."""
    posterior: Array
    """[S, outcomes]."""
    labels: Array
    """[S]."""


class PerSample(ABC):
    """One tunnel, sequence by sequence; `tunnel` is asked for its fields only."""

    def __init__(self, tunnel: Any) -> None:
        """The sizes of a tunnel of `bayesattn.tunnels`."""
        self.tunnel = tunnel

    @abstractmethod
    def sample(self, rng: np.random.Generator) -> Sample:
        """One sequence with its exact posterior."""

    @abstractmethod
    def posterior(self, inputs: Array) -> Array:
        """[S, outcomes] from the inputs alone."""


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


class PerSampleHMM(PerSample):
    """A hidden Markov chain with fresh matrices, and its forward filter."""

    def sample(self, rng: np.random.Generator) -> Sample:
        """One sequence with its exact posterior."""
        tunnel = self.tunnel
        transition = np.stack([self._row(rng, tunnel.states) for _ in range(tunnel.states)])
        emission = np.stack([self._row(rng, tunnel.symbols) for _ in range(tunnel.states)])
        states = np.empty(tunnel.length, dtype=np.int64)
        observed = np.empty(tunnel.length, dtype=np.int64)
        state = rng.integers(tunnel.states)
        for step in range(tunnel.length):
            states[step] = state
            observed[step] = rng.choice(tunnel.symbols, p=emission[state])
            state = rng.choice(tunnel.states, p=transition[state])
        inputs = self._encode(transition, emission, observed)
        return Sample(inputs, forward_filter(transition, emission, observed), states)

    def posterior(self, inputs: Array) -> Array:
        """[S, outcomes] from the inputs alone."""
        return forward_filter(*self._decode(inputs))

    def _row(self, rng: np.random.Generator, size: int) -> Array:
        tunnel = self.tunnel
        row = np.maximum(rng.dirichlet(np.full(size, tunnel.alpha)), tunnel.min_prob)
        row = row / row.sum()
        return row if tunnel.grid is None else discretise(row, tunnel.grid, tunnel.min_prob)

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
        transition = np.exp(inputs[:states, :states].astype(np.float64))
        emission = np.exp(inputs[states : 2 * states, states : states + symbols].astype(np.float64))
        if self.tunnel.grid is not None:
            per_one = round(1 / self.tunnel.grid)
            transition = np.rint(transition * per_one) / per_one
            emission = np.rint(emission * per_one) / per_one
        else:
            transition = transition / transition.sum(1, keepdims=True)
            emission = emission / emission.sum(1, keepdims=True)
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


def discretise(row: Array, grid: float, least: float) -> Array:
    """Whole multiples of `grid`, none below `least`, with sum 1.

    What is missing is added one by one to the smallest entries in turn; what is too much is taken
    from the largest.
    """
    total, floor = round(1 / grid), round(least / grid)
    units = np.maximum(np.rint(row * total).astype(int), floor)
    order = np.argsort(units)
    step = 1 if units.sum() < total else -1
    turns = order if step > 0 else order[::-1]
    turn = 0
    while units.sum() != total:
        entry = turns[turn % len(turns)]
        if floor <= units[entry] + step <= total:
            units[entry] += step
        turn += 1
    return units / total


def forward_filter(transition: Array, emission: Array, observed: Sequence[int] | Array) -> Array:
    """P(state_t | o_1..o_t) for all t, from a uniform start."""
    states = len(transition)
    belief = np.full(states, 1.0 / states)
    posterior = np.empty((len(observed), states))
    for step, symbol in enumerate(observed):
        if step > 0:
            belief = belief @ transition
        belief = belief * emission[:, symbol]
        belief = belief / belief.sum()
        posterior[step] = belief
    return posterior


class PerSampleRecall(PerSample):
    """Stored pairs, filler, queries: the answer was shown once."""

    PAD, STORE, FILLER, QUERY, SEP, KEYS = 0, 1, 2, 3, 4, 10

    def sample(self, rng: np.random.Generator) -> Sample:
        """One sequence with its exact posterior."""
        tunnel = self.tunnel
        keys = rng.permutation(tunnel.keys)[: tunnel.pairs].tolist()
        values = rng.permutation(tunnel.values)[: tunnel.pairs].tolist()
        asked = rng.permutation(tunnel.pairs)[: tunnel.queries].tolist()
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


PER_SAMPLE: dict[str, type[PerSample]] = {
    "bijection": PerSampleBijection,
    "hmm": PerSampleHMM,
    "recall": PerSampleRecall,
}
"""The per-sample code of each tunnel, by the tunnel's name."""
