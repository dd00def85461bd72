"""Does an outcome that is given probability p come true in a share p of all cases?

Tokens are put into bins by the confidence c, the probability of the most probable outcome, and
ECE = Σ_bins (n_bin / n) |mean correct - mean c|. It is above 0 even for the exact posterior, by
the luck of the sampled labels: compare it with the posterior's own.
"""

from typing import NamedTuple

import torch
from torch import Tensor

BINS = 15


class Reliability(NamedTuple):
    """Means over the tokens of each bin that has any."""

    tokens: Tensor
    confidence: Tensor
    frequency: Tensor
    """How often the most probable outcome was the sampled one."""
    bayes: Tensor
    """Its exact posterior probability: the frequency without the luck of sampling."""


def _bins(confidence: Tensor) -> Tensor:
    return (confidence * BINS).long().clamp(0, BINS - 1)


def reliability(confidence: Tensor, correct: Tensor, bayes: Tensor) -> Reliability:
    """Reliability bins of tokens, given as tensors of one shape."""
    index = _bins(confidence).flatten()
    count = torch.bincount(index, minlength=BINS)
    filled = count > 0
    means = [
        torch.bincount(index, weights=value.flatten(), minlength=BINS)[filled] / count[filled]
        for value in (confidence, correct, bayes)
    ]
    return Reliability(count[filled], *means)


def calibration_errors(confidence: Tensor, correct: Tensor, weights: Tensor) -> Tensor:
    """ECE [R] of tokens [N, S], if sequence n stood there `weights[r, n]` times; weights [R, N]."""
    gaps = confidence.new_zeros(confidence.shape[0], BINS)
    gaps.scatter_add_(1, _bins(confidence), correct - confidence)
    return (weights @ gaps).abs().sum(dim=1) / (weights.sum(dim=1) * confidence.shape[1])
