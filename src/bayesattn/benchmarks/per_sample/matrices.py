"""Rows of random stochastic matrices, one at a time."""

from typing import Any

import numpy as np

from bayesattn.benchmarks.per_sample.base import Array


def draw_row(rng: np.random.Generator, size: int, tunnel: Any) -> Array:
    """Dirichlet(alpha), clipped to `min_prob`, renormalised, on the grid if there is one."""
    row = np.maximum(rng.dirichlet(np.full(size, tunnel.alpha)), tunnel.min_prob)
    row = row / row.sum()
    return row if tunnel.grid is None else discretise(row, tunnel.grid, tunnel.min_prob)


def read_rows(logs: Array, grid: float | None) -> Array:
    """The rows whose logarithms are shown in single precision."""
    rows = np.exp(logs.astype(np.float64))
    if grid is None:
        return rows / rows.sum(1, keepdims=True)
    return np.rint(rows / grid) / round(1 / grid)


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
