"""Intervals over sequences: tokens of a sequence depend on each other, sequences do not."""

from typing import NamedTuple

import torch
from torch import Tensor

from bayesattn.stats import LEVEL

RESAMPLES = 2000


class Estimate(NamedTuple):
    """A value with its confidence interval."""

    value: float
    low: float
    high: float


def resampling_weights(sequences: int, resamples: int = RESAMPLES, seed: int = 0) -> Tensor:
    """[resamples, sequences]: how often each sequence is drawn."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(sequences, (resamples, sequences), generator=generator)
    counts = torch.zeros(resamples, sequences, dtype=torch.float64)
    return counts.scatter_add_(1, drawn, torch.ones_like(drawn, dtype=torch.float64))


def bootstrap_estimate(value: Tensor, resampled: Tensor, level: float = LEVEL) -> Estimate:
    """Percentile interval of `resampled` [R], moved by the bias that the resampling shows.

    Absolute values of means (`mae_pos`, `ece`) are larger in a resample than in the sample,
    because noise adds to them; unmoved, their interval could lie above the value itself.
    """
    if not resampled.isfinite().all():  # one infinite sequence is enough; left out, 0 · inf
        return Estimate(float(value), float(value), float(value))
    tails = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=resampled.dtype)
    low, high = (resampled.quantile(tails) - (resampled.mean() - value)).clamp_min(0.0)
    return Estimate(float(value), float(low), float(high))
