"""From numbers per seed to a judgement: intervals, chances, and the verdict rule.

The rule, written once. A claim says that an effect, oriented so that larger is in its favour,
exceeds a null by more than a minimum. With the `LEVEL` interval of its mean over seeds,

    supported     interval.low  > null + minimum
    refuted       interval.high < null + minimum
    inconclusive  the interval holds null + minimum, or there is no interval (one seed)

so, where the interval covers as stated, a claim whose effect is exactly null + minimum is called
supported in (1 - LEVEL) / 2 of all runs, and refuted as often. `p` is the chance of a verdict at
least as clear if the effect were exactly null + minimum; a claim in several parts is supported by
its weakest part, so the largest p counts, and refuted by any, so the smallest counts as often as
there are parts. Over many claims some verdicts are luck: `holm` says which stand together.

An exact identity has no sampling error: it is supported when the largest error over all seeds is
within a tolerance, and only if the same comparison, made where the identity is false, finds a
difference far beyond it.

Intervals come first in this file and know nothing of the rule; the rule is the `judge_` functions.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cache
from importlib import import_module
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

LEVEL = 0.95
RESAMPLES = 2000
SMALL_SAMPLE = 30
"""Below this many values BCa intervals cover too rarely and Student's t is used."""
POWER = 1000.0
"""A control must differ by this many tolerances, or the identity was not really tested."""

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


def mean_interval(values: Values, level: float = LEVEL) -> Interval | None:
    """Interval of the mean: Student's t for fewer than `SMALL_SAMPLE` values, BCa from there on.

    One value gives no interval.
    """
    sample = _sample(values)
    mean = float(sample.mean())
    if sample.size == 1:
        return None
    if np.ptp(sample) == 0:  # every resample is the sample, and BCa would divide zero by zero
        return Interval(mean, mean)
    if sample.size < SMALL_SAMPLE:
        return t_interval(mean, _standard_error(sample), sample.size - 1, level)
    found = _scipy_stats().bootstrap(
        (sample,), np.mean, confidence_level=level, method="BCa", rng=np.random.default_rng(0)
    )
    return Interval(*map(float, found.confidence_interval))


def t_interval(mean: float, error: float, freedom: int, level: float = LEVEL) -> Interval:
    """Student's interval of a mean with a standard error of so many degrees of freedom."""
    half = float(_scipy_stats().t.ppf((1 + level) / 2, freedom)) * error
    return Interval(mean - half, mean + half)


def resampling_weights(sequences: int, resamples: int = RESAMPLES, seed: int = 0) -> Tensor:
    """[resamples, sequences]: how often a bootstrap draws each sequence.

    Tokens of a sequence depend on each other, sequences do not: whole sequences are drawn. With
    counts instead of copies a mean under all resamples is one product.
    """
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(sequences, (resamples, sequences), generator=generator)
    counts = torch.zeros(resamples, sequences, dtype=torch.float64)
    return counts.scatter_add_(1, drawn, torch.ones_like(drawn, dtype=torch.float64))


def percentiles(resampled: Tensor, value: float | None = None, level: float = LEVEL) -> Interval:
    """The interval that holds the share `level` of `resampled` [R].

    Where resampling itself moves a statistic, as it makes the absolute value of a mean or the first
    of many variances larger, pass the `value` of the sample: the interval is moved back by the
    difference of the means.
    """
    tails = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
    low, high = resampled.double().quantile(tails)
    moved = 0.0 if value is None else float(resampled.double().mean()) - value
    return Interval(float(low) - moved, float(high) - moved)


def wilson_interval(successes: float, trials: int, level: float = LEVEL) -> Interval:
    """Wilson score interval of a proportion p = successes / trials, sensible at 0 and at 1, too.

        (p + z²/2n ± z √(p(1 - p)/n + z²/4n²)) / (1 + z²/n)

    Trials may count in parts: numbers in [0, 1] vary no more than zeros and ones do.
    """
    if not 0 <= successes <= trials or trials == 0:
        raise ValueError(f"successes must lie in 0..trials, not {successes} of {trials}")
    z2 = NormalDist().inv_cdf((1 + level) / 2) ** 2 / trials
    share = successes / trials
    half = (z2 * share * (1 - share) + z2**2 / 4) ** 0.5
    ends = ((share + z2 / 2 + side * half) / (1 + z2) for side in (-1, 1))
    low, high = ends
    return Interval(0.0 if successes == 0 else low, 1.0 if successes == trials else high)


def one_sided_p(values: Values, needed: float) -> float | None:
    """P(a mean at least so far from `needed`, on its side), were that the mean: Student's t.

    With no spread at all the chance is 0, or 1 if the mean is just what is needed.
    """
    sample = _sample(values)
    if sample.size == 1:
        return None
    distance, error = abs(float(sample.mean()) - needed), _standard_error(sample)
    if error == 0:
        return 0.0 if distance else 1.0
    return float(_scipy_stats().t.sf(distance / error, sample.size - 1))


def _standard_error(sample: NDArray[np.float64]) -> float:
    return float(sample.std(ddof=1) / np.sqrt(sample.size))


def holm(chances: Sequence[float], level: float = LEVEL) -> list[bool]:
    """Which of several findings stand together (Holm 1979).

    The chance that any of them is luck is at most 1 - level. One-sided `chances` are doubled, as
    either verdict could have come out.
    """
    stands = [False] * len(chances)
    for rank, at in enumerate(sorted(range(len(chances)), key=lambda at: chances[at])):
        if 2 * chances[at] * (len(chances) - rank) > 1 - level:
            break
        stands[at] = True
    return stands


class Outcome(StrEnum):
    """What a judgement says of a claim."""

    SUPPORTED = "supported"
    REFUTED = "refuted"
    INCONCLUSIVE = "inconclusive"


class Judgement(NamedTuple):
    """An outcome, the value and interval it rests on, and why, in one sentence."""

    outcome: Outcome
    value: float
    interval: Interval | None
    reason: str
    p: float | None = None
    """Of the outcome; None where there is none: inconclusive, or exact."""


def judge_effect(
    values: Values, *, null: float = 0.0, minimum: float = 0.0, level: float = LEVEL
) -> Judgement:
    """The rule at the top of this file, for one value of the effect per seed."""
    if minimum < 0:
        raise ValueError(f"minimum must be 0 or more, not {minimum}")
    needed = null + minimum
    return _judge(
        values, needed, f"{needed:.3g} needed", (Outcome.SUPPORTED, Outcome.REFUTED), level
    )


def judge_below(values: Values, *, limit: float, level: float = LEVEL) -> Judgement:
    """The same rule for an error, one value per seed, that a claim says lies below `limit`."""
    return _judge(values, limit, f"limit {limit:.3g}", (Outcome.REFUTED, Outcome.SUPPORTED), level)


def _judge(
    values: Values, mark: float, name: str, sides: tuple[Outcome, Outcome], level: float
) -> Judgement:
    """Where the interval lies beside `mark`; `sides` is what lying above and below it means."""
    mean, interval = float(_sample(values).mean()), mean_interval(values, level)
    if interval is None:
        reason = "One seed gives no interval: run at least two."
        return Judgement(Outcome.INCONCLUSIVE, mean, None, reason)
    shown = f"The {level:.0%} interval [{interval.low:.3g}, {interval.high:.3g}]"
    if interval.low <= mark <= interval.high:
        return Judgement(Outcome.INCONCLUSIVE, mean, interval, f"{shown} holds the {name}.")
    above = interval.low > mark
    reason = f"{shown} lies {'above' if above else 'below'} the {name}."
    return Judgement(sides[not above], mean, interval, reason, one_sided_p(values, mark))


def judge_identity(errors: Values, controls: Values, *, tolerance: float) -> Judgement:
    """Supported when max(errors) <= tolerance and min(controls) > `POWER` * tolerance.

    Args:
        errors: largest difference between the two sides, one per seed.
        controls: the same difference where the identity is false, so it must be large.
        tolerance: what rounding alone may cause.
    """
    worst = float(np.max(np.asarray(errors, dtype=np.float64)))
    weakest = float(np.min(np.asarray(controls, dtype=np.float64)))
    found = f"The largest error {worst:.2g}"
    if not worst <= tolerance:  # so that NaN refutes
        reason = f"{found} exceeds the tolerance {tolerance:.0e}."
        return Judgement(Outcome.REFUTED, worst, None, reason)
    if not weakest > POWER * tolerance:
        reason = f"The control differs by only {weakest:.2g}, so the comparison could not fail."
        return Judgement(Outcome.INCONCLUSIVE, worst, None, reason)
    reason = f"{found} is within the tolerance {tolerance:.0e}; the control gives {weakest:.2g}."
    return Judgement(Outcome.SUPPORTED, worst, None, reason)


def judge_given(premise: str, given: Judgement, judgement: Judgement) -> Judgement:
    """`judgement` if its premise is supported; else inconclusive, whatever was measured.

    What a model does not do at all says nothing about how it carries over.
    """
    if given.outcome is Outcome.SUPPORTED:
        return judgement
    reason = f"Nothing to judge by. {premise}: {given.reason}"
    return judgement._replace(outcome=Outcome.INCONCLUSIVE, reason=reason, p=None)


def judge_all(parts: Mapping[str, Judgement]) -> Judgement:
    """A claim in several named parts holds when each part does: the weakest part decides."""
    for outcome in (Outcome.REFUTED, Outcome.INCONCLUSIVE):
        for name, part in parts.items():
            if part.outcome is outcome:
                p = None if part.p is None else min(1.0, part.p * len(parts))
                return part._replace(reason=f"{name}: {part.reason}", p=p)
    chances = [part.p for part in parts.values() if part.p is not None]
    return next(iter(parts.values()))._replace(p=max(chances, default=None))
