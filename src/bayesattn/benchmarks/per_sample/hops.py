"""Hops, one sequence at a time."""

import numpy as np

from bayesattn.benchmarks.per_sample.base import Array, PerSample, Sample

Known = dict[int, int]
Walk = tuple[float, list[int]]


class PerSampleHops(PerSample):
    """A walk along a permutation; where it is not known, all that is possible."""

    def sample(self, rng: np.random.Generator) -> Sample:
        """One sequence with its exact posterior."""
        tunnel = self.tunnel
        size, mode = tunnel.alphabet, tunnel.mode
        own, asked, keys = self._draw(rng)
        other, start, _ = self._draw(rng)
        hops = int(rng.integers(1, tunnel.hops + 1))
        query, answer, blank = self._marks()
        tokens: list[int] = []
        for key in keys:
            tokens += [key, size + own[key]]
        tokens += [query, asked, 2 * size + hops - 1]
        chain = self._chain(other, start) if mode == "shuffled" else self._chain(own, asked)
        labels: list[int] = []
        for hop in self._shown():
            symbol = chain[hop] if hop < hops and mode != "filler" else None
            tokens.append(blank if symbol is None else symbol)
            if mode != "filler":
                labels.append(size if symbol is None else symbol)
        tokens.append(answer)
        labels.append(self._chain(own, asked)[hops])
        inputs = np.array(tokens, dtype=np.int64)
        return Sample(inputs, self.posterior(inputs), np.array(labels))

    def posterior(self, inputs: Array) -> Array:
        """[S, outcomes] from the inputs alone."""
        tunnel, tokens = self.tunnel, inputs.tolist()
        size, shown = tunnel.alphabet, self._shown()
        pairs = 2 * tunnel.revealed
        known = {tokens[at]: tokens[at + 1] - size for at in range(0, pairs, 2)}
        asked, hops = tokens[pairs + 1], tokens[pairs + 2] - 2 * size + 1
        scratch = tokens[pairs + 3 : -1]
        walks = self._walks(asked, hops, known)
        if tunnel.mode in ("direct", "filler"):
            return np.array([self._mean(walks, hops, size)])
        outcomes = size + 1 if shown else size
        rows: list[list[float]] = []
        # of another sequence nothing is known, not even where it began
        others: list[Walk] | None = None if tunnel.mode == "shuffled" else walks
        for hop, token in zip(shown, scratch, strict=True):
            if hop >= hops:
                rows.append([0.0] * size + [1.0])
            elif others is None:
                rows.append([1 / size] * size + [0.0])
                others = [(p, [-1, *walk]) for p, walk in self._walks(token, hops - 1, {})]
            else:
                rows.append(self._mean(others, hop, outcomes))
                others = [(p, walk) for p, walk in others if walk[hop] == token]
        final = walks if tunnel.mode == "shuffled" or others is None else others
        rows.append(self._mean(final, hops, outcomes))
        return np.array(rows)

    def _draw(self, rng: np.random.Generator) -> tuple[list[int], int, list[int]]:
        """A permutation, the asked key and the revealed ones."""
        size = self.tunnel.alphabet
        keys = rng.permutation(size)[: self.tunnel.revealed].tolist()
        return rng.permutation(size).tolist(), keys[rng.integers(len(keys))], keys

    def _chain(self, permutation: list[int], symbol: int) -> list[int]:
        chain = [symbol]
        for _ in range(self.tunnel.hops):
            chain.append(permutation[chain[-1]])
        return chain

    def _walks(self, symbol: int, hops: int, known: Known) -> list[Walk]:
        """Every walk with its probability."""
        if hops == 0:
            return [(1.0, [symbol])]
        used = set(known.values())
        values = [v for v in range(self.tunnel.alphabet) if v not in used]
        options = [known[symbol]] if symbol in known else values
        return [
            (chance / len(options), [symbol, *walk])
            for value in options
            for chance, walk in self._walks(value, hops - 1, {**known, symbol: value})
        ]

    @staticmethod
    def _mean(walks: list[Walk], hop: int, outcomes: int) -> list[float]:
        total = sum(chance for chance, _ in walks)
        row = [0.0] * outcomes
        for chance, walk in walks:
            row[walk[hop]] += chance / total
        return row

    def _shown(self) -> list[int]:
        """Hops that have a place in the scratch."""
        if self.tunnel.mode == "direct":
            return []
        stride = 2 if self.tunnel.mode == "short" else 1
        return list(range(stride, self.tunnel.hops, stride))

    def _marks(self) -> tuple[int, int, int]:
        """QUERY, ANSWER, blank."""
        first = 2 * self.tunnel.alphabet + self.tunnel.hops
        return first, first + 1, first + 2
