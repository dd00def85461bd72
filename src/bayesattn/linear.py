"""Ridge regression, principal components and correlations, in float64.

Ridge of y on x, both centred:

    fit             W = argmin Σ ‖y - Wx - b‖² + λ‖W‖², λ a thousandth of the mean variance of x
    left out        e_i / (1 - S_ii) for the smoother S = 1/n + K (K + λ)⁻¹ is exactly the error on
                    row i of a fit to all others with the same λ. Here λ is the mean variance of a
                    row, tr(K) / n for the Gram matrix K, which avoids overfitting of few rows in
                    many dimensions

Principal components of a few rows in many dimensions, for many resamplings at once:

    gram            G = Z Zᵀ [n, n] of rows Z [n, d], centred, and divided by the deviation of their
                    columns if standardised. If row i counts w_i times, the eigenvalues of
                    √w_i G_ij √w_j are those of the covariance, times n
    scores          of every row on the first axes, G (√w ∘ a) / √λ for an eigenvector a
    participation   (Σλ)² / Σλ²

n is far below d in the second part, so no matrix there is d × d. Means and deviations are those
of the resample. Correlations also take weights w; ranks are those of the expanded sample, and
ties have equal ranks: rank_i = Σ_j w_j ([x_j < x_i] + ½ [x_j = x_i]).
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

RIDGE = 1e-3
AT_ONCE = 2**23
"""Largest number of elements of a temporary tensor."""


class Readout(NamedTuple):
    """ŷ = x · weight + offset."""

    weight: Tensor
    """[d, c]."""
    offset: Tensor
    """[c]."""
    mean: Tensor
    """[c] mean of the targets of the fit."""

    def squares(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Squared errors and deviations [N, c] of each sequence, from x [N, S, d], y [N, S, c]."""
        error = (y - x.double() @ self.weight - self.offset).square().sum(1)
        return error, (y - self.mean).square().sum(1)


def fit(x: Tensor, y: Tensor) -> Readout:
    """Ridge regression of y [..., c] on x [..., d]."""
    (rows, centre), (targets, mean) = centred(x.flatten(0, -2)), centred(y.flatten(0, -2))
    weight = _ridge(rows.T @ rows, rows.T @ targets)
    return Readout(weight, mean - centre @ weight, mean)


def read_folds(x: Tensor, y: Tensor, folds: Tensor) -> Tensor:
    """[n, c] predictions of y from x [n, d]; each of `folds` [n] by a `fit` to all other rows.

    Rows of fold -1 are in every fit, and their predictions are NaN. Sums over a fold are subtracted
    from the sums over all rows, so no row is summed often.
    """
    (rows, _), (targets, offset) = centred(x), centred(y)
    inner, outer = rows.T @ rows, rows.T @ targets
    told = torch.full_like(targets, torch.nan)
    for fold in folds[folds >= 0].unique():
        own = folds == fold
        a, b = rows[own], targets[own]
        count = len(rows) - len(a)
        centre, mean = -a.sum(0) / count, -b.sum(0) / count
        weight = _ridge(
            inner - a.T @ a - count * centre.outer(centre),
            outer - a.T @ b - count * centre.outer(mean),
        )
        told[own] = (a - centre) @ weight + mean
    return told + offset


def _ridge(inner: Tensor, outer: Tensor) -> Tensor:
    """[d, c] weights from products [d, d] of inputs and [d, c] of inputs and targets."""
    penalty = RIDGE * inner.diagonal().mean().clamp(min=1e-30)
    return torch.linalg.solve(inner + penalty * torch.eye(len(inner), dtype=inner.dtype), outer)


def held_out_errors(x: Tensor, y: Tensor) -> Tensor:
    """[n, c] error on each row when it is left out of the fit of y [n, c] to x [n, d]."""
    rows, _ = centred(x)
    kernel = rows @ rows.T
    penalty = kernel.diagonal().mean().clamp(min=1e-30)
    ridge = kernel + penalty * torch.eye(len(rows), dtype=kernel.dtype)
    smoother = torch.linalg.solve(ridge, kernel) + 1 / len(rows)
    return (y - smoother @ y) / (1 - smoother.diagonal())[:, None]


def centred(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows [n, d] minus their mean, in float64, and the mean."""
    rows = rows.double()
    mean = rows.mean(0)
    return rows - mean, mean


def principal_axes(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Deviations [m] times √n and directions [m, d] of rows [n, d], largest deviation first."""
    _, lengths, directions = torch.linalg.svd(centred(rows)[0], full_matrices=False)
    return lengths, directions


def participation(variances: Tensor) -> Tensor:
    """(Σλ)² / Σλ² over the last dimension: effective number of components."""
    return variances.sum(-1).square() / variances.square().sum(-1).clamp(min=1e-300)


def linear_cka(first: Tensor, second: Tensor) -> float:
    """Centred kernel alignment ‖X'Y‖² / (‖X'X‖ ‖Y'Y‖) of X and Y [n, D]: 1 after any rotation."""
    x, y = centred(first)[0], centred(second)[0]
    squares = [product.square().sum() for product in (x.T @ y, x.T @ x, y.T @ y)]
    return float(squares[0] / (squares[1] * squares[2]).sqrt())


def correlation(x: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
    """[...] Pearson's r over the last dimension [..., n]; 0 if x or y is constant."""
    x, y = torch.broadcast_tensors(x.double(), y.double())
    weights = torch.ones_like(x) if weights is None else weights
    total = weights.sum(-1, keepdim=True)
    x, y = (z - (weights * z).sum(-1, keepdim=True) / total for z in (x, y))
    spread = ((weights * x * x).sum(-1) * (weights * y * y).sum(-1)).sqrt()
    products = (weights * x * y).sum(-1)
    return torch.where(spread > 1e-12, products / spread.clamp(min=1e-12), 0.0)


def ranks(x: Tensor, weights: Tensor | None = None) -> Tensor:
    """[..., n] ranks along the last dimension."""
    x = x.double() if weights is None else x.double().expand_as(weights)
    weights = torch.ones_like(x) if weights is None else weights
    values, order = x.sort(-1)
    below = torch.nn.functional.pad(weights.gather(-1, order).cumsum(-1), (1, 0))
    ends = (torch.searchsorted(values, x.contiguous(), right=right) for right in (False, True))
    low, high = (below.gather(-1, end) for end in ends)
    return (low + high) / 2


def spearman(x: Tensor, y: Tensor, weights: Tensor | None = None) -> Tensor:
    """[...] Spearman's correlation of ranks."""
    return correlation(ranks(x, weights), ranks(y, weights), weights)


class Shares(NamedTuple):
    """Distribution of the variance over components, one number per resampling."""

    first: Tensor
    """Share of the first component."""
    two: Tensor
    """Share of the first two."""
    participation: Tensor


def gram(rows: Tensor, weights: Tensor, *, standardise: bool) -> Tensor:
    """[R, n, n] inner products of rows [n, d] or [R, n, d]; row i counts weights[R, n] times.

    Constant columns become 0.
    """
    count = weights.sum(1)[:, None, None]
    rows = rows - (weights[:, None, :] @ rows) / count
    if standardise:
        variance = (weights[:, :, None] * rows.square()).sum(1, keepdim=True) / count
        alive = variance > 1e-12 * variance.mean(-1, keepdim=True)
        rows = torch.where(alive, rows / variance.clamp(min=1e-300).sqrt(), 0.0)
    return rows @ rows.transpose(-1, -2)


def shares(grams: Tensor, weights: Tensor) -> Shares:
    """Shares from inner products [R, n, n] of rows that count weights [R, n] times."""
    variances = torch.linalg.eigvalsh(_weighted(grams, weights)).clamp(min=0)
    total = variances.sum(-1).clamp(min=1e-300)
    top = variances[..., -2:].flip(-1).cumsum(-1) / total[..., None]
    return Shares(top[..., 0], top[..., -1], participation(variances))


def scores(grams: Tensor, weights: Tensor, components: int = 1) -> Tensor:
    """[R, n, components] scores of all rows on the first axes, also of rows with weight 0."""
    variances, vectors = torch.linalg.eigh(_weighted(grams, weights))
    variances, vectors = (x[..., -components:].flip(-1) for x in (variances, vectors))
    axes = weights.sqrt()[..., None] * vectors / variances[:, None].clamp(min=1e-300).sqrt()
    return grams @ axes


def chunks(weights: Tensor, width: int) -> Iterator[Tensor]:
    """Resamplings [R, n] in parts small enough for `width` columns."""
    return iter(weights.split(max(1, AT_ONCE // (weights.shape[1] * width))))


def _weighted(grams: Tensor, weights: Tensor) -> Tensor:
    roots = weights.sqrt()
    return roots[:, :, None] * grams * roots[:, None, :]
