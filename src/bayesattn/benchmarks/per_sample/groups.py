"""The group filter, one sequence at a time."""

from itertools import permutations

import numpy as np

from bayesattn.benchmarks.per_sample.base import Array, PerSample, Sample


class PerSampleGroup(PerSample):
    """Bayes' rule step by step: move the belief, then weigh it by the reading."""

    def __init__(self, tunnel: object) -> None:
        """Elements as the orders they bring the points into."""
        super().__init__(tunnel)
        kind, size = self.tunnel.group[0], int(self.tunnel.group[1:])
        if kind == "S":
            self.elements = list(permutations(range(size)))
        else:
            self.elements = [tuple((j + by) % size for j in range(size)) for by in range(size)]
        self.points = size

    def sample(self, rng: np.random.Generator) -> Sample:
        """One sequence with its exact posterior."""
        tunnel, points, order = self.tunnel, self.points, len(self.elements)
        point = int(rng.integers(points))
        product = tuple(range(points))
        tokens: list[int] = []
        labels: list[int] = []
        belief = [1 / points] * points
        for _ in range(tunnel.length):
            action = int(rng.choice(tunnel.allowed.tolist()))
            point = self.elements[action][point]
            product = tuple(self.elements[action][j] for j in product)
            others = [j for j in range(points) if j != point]
            right = rng.random() < tunnel.reliability
            reading = point if right else int(rng.choice(others))
            belief = self._update(belief, action, reading)
            number = self.elements.index(product)
            scratch = order + points
            match tunnel.scratch:
                case "none":
                    tokens += [action, order + reading]
                case "product":
                    tokens += [action, scratch + number, order + reading]
                    labels.append(number)
                case "argmax":
                    tokens += [action, order + reading, scratch + self._largest(belief)]
                case _:
                    tokens += [action, scratch, order + reading]
            labels.append(point)
        if tunnel.scratch == "argmax":
            tokens.pop()
        inputs = np.array(tokens, dtype=np.int64)
        return Sample(inputs, self.posterior(inputs), np.array(labels))

    def posterior(self, inputs: Array) -> Array:
        """[S, outcomes] from the inputs alone."""
        tunnel, points, order = self.tunnel, self.points, len(self.elements)
        with_products = tunnel.scratch == "product"
        outcomes = order if with_products else points
        product = tuple(range(points))
        belief = [1 / points] * points
        rows: list[list[float]] = []
        action = 0
        for token in inputs.tolist():
            if token < order:
                action = token
                product = tuple(self.elements[action][j] for j in product)
                if with_products:
                    number = self.elements.index(product)
                    rows.append([float(number == element) for element in range(outcomes)])
            elif token < order + points:
                belief = self._update(belief, action, token - order)
                rows.append(belief + [0.0] * (outcomes - points))
        return np.array(rows)

    def _update(self, belief: list[float], action: int, reading: int) -> list[float]:
        moved = [0.0] * self.points
        for j, chance in enumerate(belief):
            moved[self.elements[action][j]] = chance
        right = self.tunnel.reliability
        wrong = (1 - right) / (self.points - 1)
        weighed = [p * (right if j == reading else wrong) for j, p in enumerate(moved)]
        return [p / sum(weighed) for p in weighed]

    @staticmethod
    def _largest(belief: list[float]) -> int:
        return next(j for j, p in enumerate(belief) if p >= max(belief) - 1e-9)
