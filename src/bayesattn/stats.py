"""From numbers per seed to a judgement: intervals, permutation nulls, and the verdict rule.

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
"""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import cache
from importlib import import_module
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
Statistic = Callable[..., Any]


class Outcome(StrEnum):
    """What a judgement says of a claim."""

    SUPPORTED = "supported"
    REFUTED = "refuted"
    INCONCLUSIVE = "inconclusive"


class Interval(NamedTuple):
    """A confidence interval, both ends included."""

    low: float
    high: float


class Estimate(NamedTuple):
    """A value with its interval."""

    value: float
    interval: Interval


class Judgement(NamedTuple):
    """An outcome, the value and interval it rests on, and why, in one sentence."""

    outcome: Outcome
    value: float
    interval: Interval | None
    reason: str
    p: float | None = None
    """Of the outcome; None where there is none: inconclusive, or exact."""


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
    if sample.size == 1:
        return None
    if sample.size >= SMALL_SAMPLE:
        return bootstrap_interval(sample, level=level)
    half = _scipy_stats().t.ppf((1 + level) / 2, sample.size - 1) * sample.std(ddof=1)
    half = float(half / np.sqrt(sample.size))
    mean = float(sample.mean())
    return Interval(mean - half, mean + half)


def bootstrap_interval(
    values: Values, statistic: Statistic = np.mean, level: float = LEVEL, seed: int = 0
) -> Interval:
    """BCa bootstrap interval of `statistic(values, axis=…)`, repeatable for a given seed."""
    sample = _sample(values)
    if np.ptp(sample) == 0:  # every resample is the sample, and BCa would divide zero by zero
        value = float(statistic(sample, axis=0))
        return Interval(value, value)
    result = _scipy_stats().bootstrap(
        (sample,), statistic, confidence_level=level, method="BCa", rng=np.random.default_rng(seed)
    )
    return Interval(*map(float, result.confidence_interval))


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


def wilson_interval(successes: int, trials: int, level: float = LEVEL) -> Interval:
    """Wilson score interval of a proportion, sensible at 0 and at `trials` successes too."""
    if not 0 <= successes <= trials or trials == 0:
        raise ValueError(f"successes must lie in 0..trials, not {successes} of {trials}")
    test = _scipy_stats().binomtest(successes, trials)
    interval = test.proportion_ci(confidence_level=level, method="wilson")
    return Interval(float(interval.low), float(interval.high))


def permutation_p(first: Values, second: Values, seed: int = 0, resamples: int = 9999) -> float:
    """P(difference of means at least as large as seen), were the labels exchangeable.

    One-sided: small when the mean of `first` exceeds that of `second`.
    """

    def difference(a: Any, b: Any, axis: int) -> Any:
        return np.mean(a, axis=axis) - np.mean(b, axis=axis)

    result = _scipy_stats().permutation_test(
        (_sample(first), _sample(second)),
        difference,
        vectorized=True,
        n_resamples=resamples,
        alternative="greater",
        rng=np.random.default_rng(seed),
    )
    return float(result.pvalue)


def judge_effect(
    values: Values, *, null: float = 0.0, minimum: float = 0.0, level: float = LEVEL
) -> Judgement:
    """The rule at the top of this file, for one value of the effect per seed."""
    if minimum < 0:
        raise ValueError(f"minimum must be 0 or more, not {minimum}")
    mean = float(_sample(values).mean())
    interval = mean_interval(values, level)
    needed = null + minimum
    if interval is None:
        return Judgement(
            Outcome.INCONCLUSIVE, mean, None, "One seed gives no interval: run at least two."
        )
    shown = f"The {level:.0%} interval [{interval.low:.3g}, {interval.high:.3g}]"
    p = one_sided_p(values, needed)
    if interval.low > needed:
        return Judgement(
            Outcome.SUPPORTED, mean, interval, f"{shown} lies above the {needed:.3g} needed.", p
        )
    if interval.high < needed:
        return Judgement(
            Outcome.REFUTED, mean, interval, f"{shown} lies below the {needed:.3g} needed.", p
        )
    return Judgement(
        Outcome.INCONCLUSIVE, mean, interval, f"{shown} holds the {needed:.3g} needed."
    )


def judge_below(values: Values, *, limit: float, level: float = LEVEL) -> Judgement:
    """The same rule for an error, one value per seed, that a claim says lies below `limit`."""
    judged = judge_effect(-_sample(values), null=-limit, level=level)
    mean, interval = -judged.value, judged.interval
    if interval is None:
        return judged._replace(value=mean)
    interval = Interval(-interval.high, -interval.low)
    where = {
        Outcome.SUPPORTED: "lies below",
        Outcome.REFUTED: "lies above",
        Outcome.INCONCLUSIVE: "holds",
    }[judged.outcome]
    shown = f"The {level:.0%} interval [{interval.low:.3g}, {interval.high:.3g}]"
    reason = f"{shown} {where} the limit {limit:.3g}."
    return Judgement(judged.outcome, mean, interval, reason, judged.p)


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


def one_sided_p(values: Values, needed: float) -> float | None:
    """P(a mean at least so far from `needed`, on its side), were that the mean: Student's t.

    With no spread at all the chance is 0, or 1 if the mean is just what is needed.
    """
    sample = _sample(values)
    if sample.size == 1:
        return None
    distance = abs(float(sample.mean()) - needed)
    error = float(sample.std(ddof=1) / np.sqrt(sample.size))
    if error == 0:
        return 0.0 if distance else 1.0
    return float(_scipy_stats().t.sf(distance / error, sample.size - 1))


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
