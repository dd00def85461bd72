"""What principal components show where there is nothing to find: noise and shuffled columns."""

from functools import cache

import torch
from torch import Generator, Tensor

from bayesattn.linear import Shares, chunks, gram, shares
from bayesattn.probes.nulls import shuffled_columns

NOISES = 100


def permuted_shares(rows: Tensor, count: int, generator: Generator, *, standardise: bool) -> Shares:
    """[count] shares after each column of rows [n, d] is put in an order of its own."""
    ones = torch.ones(count, len(rows), dtype=rows.dtype)
    found: list[Shares] = []
    for weights in chunks(ones, rows.shape[1]):
        mixed = shuffled_columns(rows, len(weights), generator)
        found.append(shares(gram(mixed, weights, standardise=standardise), weights))
    return _joined(found)


@cache
def noise(count: int, width: int, standardise: bool = True) -> tuple[float, float, float]:
    """Mean first share, share of two and participation of Gaussian noise [count, width]."""
    generator = Generator().manual_seed(0)
    found: list[Shares] = []
    for weights in chunks(torch.ones(NOISES, count, dtype=torch.float64), width):
        drawn = torch.randn(len(weights), count, width, generator=generator, dtype=torch.float64)
        found.append(shares(gram(drawn, weights, standardise=standardise), weights))
    first, two, effective = (float(x.mean()) for x in _joined(found))
    return first, two, effective


def _joined(found: list[Shares]) -> Shares:
    return Shares(*(torch.cat(parts) for parts in zip(*found, strict=True)))
