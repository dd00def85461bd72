"""Correlations where entry i stands w_i times: a bootstrap without copies.

Shapes: R resamplings, n entries. Ranks are those of the expanded sample, ties share theirs:
rank_i = Σ_j w_j ([x_j < x_i] + ½ [x_j = x_i]).
"""

import torch
from torch import Tensor


def weighted_correlation(x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
    """[R] Pearson's r of x and y, each [n] or [R, n]; 0 where one does not vary."""
    total = weights.sum(-1, keepdim=True)
    x, y = (z - (weights * z).sum(-1, keepdim=True) / total for z in (x, y))
    spread = ((weights * x * x).sum(-1) * (weights * y * y).sum(-1)).sqrt()
    products = (weights * x * y).sum(-1)
    return torch.where(spread > 1e-12, products / spread.clamp(min=1e-12), 0.0)


def weighted_ranks(x: Tensor, weights: Tensor) -> Tensor:
    """[R, n] ranks of x [n] or [R, n]."""
    x = x.expand_as(weights)
    below = (x[:, None, :] < x[:, :, None]).double() + (x[:, None, :] == x[:, :, None]) / 2
    return (below @ weights[..., None])[..., 0]


def weighted_spearman(x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
    """[R] correlation of ranks."""
    return weighted_correlation(weighted_ranks(x, weights), weighted_ranks(y, weights), weights)
