"""Principal components of a few prompts in many dimensions, for many resamplings at once.

    rows          [n, d], columns centred, and divided by their deviation if standardised
    gram          G = Z Zᵀ [n, n]; with prompt i standing w_i times, the eigenvalues of
                  √w_i G_ij √w_j are those of the covariance, times n
    scores        of every prompt on the first axis, G (√w ∘ a) / √λ for the first eigenvector a
    noise         what independent Gaussian numbers of the same n and d give, by drawing them
    participation (Σλ)² / Σλ²

n is far below d here, so nothing is ever d × d. Means and deviations are those of the resample.
"""

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from bayesattn.probes.nulls import shuffled_columns
from bayesattn.probes.values import participation

AT_ONCE = 2**23
"""Numbers in the largest tensor that is made."""
NOISES = 100


class Shares(NamedTuple):
    """How variance is spread over components, one number per resampling."""

    first: Tensor
    """Share of the first component."""
    two: Tensor
    """Share of the first two."""
    participation: Tensor


def gram(rows: Tensor, weights: Tensor, *, standardise: bool) -> Tensor:
    """[R, n, n] inner products of rows [n, d] or [R, n, d] where row i stands weights[R, n] times.

    Columns that do not vary stay 0.
    """
    count = weights.sum(1)[:, None, None]
    rows = rows - (weights[:, None, :] @ rows) / count
    if standardise:
        variance = (weights[:, :, None] * rows.square()).sum(1, keepdim=True) / count
        alive = variance > 1e-12 * variance.mean(-1, keepdim=True)
        rows = torch.where(alive, rows / variance.clamp(min=1e-300).sqrt(), 0.0)
    return rows @ rows.transpose(-1, -2)


def shares(grams: Tensor, weights: Tensor) -> Shares:
    """Of inner products [R, n, n] of rows that stand weights [R, n] times."""
    variances = torch.linalg.eigvalsh(_weighted(grams, weights)).clamp(min=0)
    total = variances.sum(-1).clamp(min=1e-300)
    top = variances[..., -2:].flip(-1).cumsum(-1) / total[..., None]
    return Shares(top[..., 0], top[..., -1], participation(variances))


def scores(grams: Tensor, weights: Tensor, components: int = 1) -> Tensor:
    """[R, n, components] of every row on the first axes, whether it was drawn or not."""
    variances, vectors = torch.linalg.eigh(_weighted(grams, weights))
    variances, vectors = (x[..., -components:].flip(-1) for x in (variances, vectors))
    axes = weights.sqrt()[..., None] * vectors / variances[:, None].clamp(min=1e-300).sqrt()
    return grams @ axes


def chunks(weights: Tensor, width: int) -> Iterator[Tensor]:
    """Resamplings [R, n] in parts small enough for `width` columns."""
    return iter(weights.split(max(1, AT_ONCE // (weights.shape[1] * width))))


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


def _weighted(grams: Tensor, weights: Tensor) -> Tensor:
    roots = weights.sqrt()
    return roots[:, :, None] * grams * roots[:, None, :]


def _joined(found: list[Shares]) -> Shares:
    return Shares(*(torch.cat(parts) for parts in zip(*found, strict=True)))
