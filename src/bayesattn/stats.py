"""Intervals: of means, of proportions, and by resampling whole sequences."""

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

LEVEL = 0.95
RESAMPLES = 2000
SMALL_SAMPLE = 30
"""With fewer values, BCa intervals cover too rarely, and Student's t is used."""

Values = Sequence[float] | NDArray[np.float64]


class Interval(NamedTuple):
    """A confidence interval, both ends included."""

    low: float
    high: float


class Estimate(NamedTuple):
    """A value with its interval."""

    value: float
    interval: Interval


@cache
def _scipy_stats() -> Any:
    # scipy.stats takes a second to import, and most commands never compute an interval.
    return import_module("scipy.stats")


def _sample(values: Values) -> NDArray[np.float64]:
    sample = np.asarray(values, dtype=np.float64)
    if sample.ndim != 1 or sample.size == 0:
        raise ValueError(f"values must be a non-empty list of numbers, not of shape {sample.shape}")
    if not np.isfinite(sample).all():
        raise ValueError("values must be finite: one of them is NaN or infinite")
    return sample


def mean_interval(values: Values) -> Interval | None:
    """Interval of the mean: Student's t for fewer than `SMALL_SAMPLE` values, BCa from there on.

    One value gives no interval.
    """
    sample = _sample(values)
    mean = float(sample.mean())
    if sample.size == 1:
        return None
    if np.ptp(sample) == 0:  # all values are equal, and BCa would divide zero by zero
        return Interval(mean, mean)
    if sample.size < SMALL_SAMPLE:
        return t_interval(mean, float(sample.std(ddof=1) / np.sqrt(sample.size)), sample.size - 1)
    found = _scipy_stats().bootstrap(
        (sample,), np.mean, confidence_level=LEVEL, method="BCa", rng=np.random.default_rng(0)
    )
    return Interval(*map(float, found.confidence_interval))


def t_interval(mean: float, error: float, freedom: int) -> Interval:
    """Student's interval of a mean, from its standard error and degrees of freedom."""
    half = float(_scipy_stats().t.ppf((1 + LEVEL) / 2, freedom)) * error
    return Interval(mean - half, mean + half)


def resampling_weights(sequences: int, resamples: int = RESAMPLES, seed: int = 0) -> "Tensor":
    """[resamples, sequences]: how often a bootstrap draws each sequence.

    Tokens of a sequence depend on each other, sequences do not, so whole sequences are drawn. With
    counts instead of copies, the means of all resamples are one matrix product.
    """
    import torch  # imported late: code that reads a ledger needs no tensors

    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(sequences, (resamples, sequences), generator=generator)
    counts = torch.zeros(resamples, sequences, dtype=torch.float64)
    return counts.scatter_add_(1, drawn, torch.ones_like(drawn, dtype=torch.float64))


def percentiles(resampled: "Tensor", value: float | None = None) -> Interval:
    """The interval that contains the share `LEVEL` of `resampled` [R].

    Resampling biases some statistics: it increases the absolute value of a mean and the largest of
    many variances. For these pass the `value` of the sample: the interval is shifted back by the
    bias.
    """
    import torch

    tails = torch.tensor([(1 - LEVEL) / 2, (1 + LEVEL) / 2], dtype=torch.float64)
    low, high = resampled.double().quantile(tails)
    moved = 0.0 if value is None else float(resampled.double().mean()) - value
    return Interval(float(low) - moved, float(high) - moved)


def wilson_interval(successes: float, trials: int) -> Interval:
    """Wilson score interval of a proportion p = successes / trials, also valid at 0 and 1.

        (p + z²/2n ± z √(p(1 - p)/n + z²/4n²)) / (1 + z²/n)

    Successes may be fractions: numbers in [0, 1] vary no more than zeros and ones.
    """
    if not 0 <= successes <= trials or trials == 0:
        raise ValueError(f"successes must lie in 0..trials, not {successes} of {trials}")
    z2 = NormalDist().inv_cdf((1 + LEVEL) / 2) ** 2 / trials
    share = successes / trials
    half = (z2 * share * (1 - share) + z2**2 / 4) ** 0.5
    low, high = ((share + z2 / 2 + side * half) / (1 + z2) for side in (-1, 1))
    return Interval(0.0 if successes == 0 else low, 1.0 if successes == trials else high)
