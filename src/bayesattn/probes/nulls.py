"""What measurements give where there is nothing to find.

random directions      E|cos| = Γ(d/2) / (√π Γ((d+1)/2)) ≈ √(2 / πd)
white noise, n × d     eigenvalues of the covariance end at (1 + √(d/n))², so that the first
                       component holds that over d, and the participation ratio is nd / (n + d)
permutations           the same numbers in an order that means nothing
"""

import math
from typing import NamedTuple

import torch
from torch import Generator, Tensor


def random_cosine(width: int) -> float:
    """Mean |cos| of two random directions in `width` dimensions."""
    logs = math.lgamma(width / 2) - math.lgamma((width + 1) / 2)
    return math.exp(logs) / math.sqrt(math.pi)


class Noise(NamedTuple):
    """What principal components show of white noise (Marchenko & Pastur 1967)."""

    first_share: float
    """Share of the variance on the first component: the edge of the spectrum."""
    participation: float
    """(Σλ)² / Σλ²."""


def white_noise(samples: int, width: int) -> Noise:
    """For `samples` independent rows of `width` independent numbers of equal variance."""
    edge = (1 + math.sqrt(width / samples)) ** 2
    return Noise(min(1.0, edge / width), samples * width / (samples + width))


def shuffled_columns(rows: Tensor, count: int, generator: Generator) -> Tensor:
    """[count, n, d]: each column of `rows` [n, d] in an order of its own.

    Means and variances of the columns stay; which entries belong to one row does not.
    """
    order = torch.rand(count, *rows.shape, generator=generator).argsort(dim=1)
    return rows.expand(count, -1, -1).gather(1, order)


def shuffled_sequences(values: Tensor, count: int, generator: Generator) -> Tensor:
    """[count, N, S]: at every step the numbers of `values` [N, S] go to other sequences.

    What the step alone tells stays; what the sequence tells does not.
    """
    order = torch.rand(count, *values.shape, generator=generator).argsort(dim=1)
    return values.expand(count, -1, -1).gather(1, order)
