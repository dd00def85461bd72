"""One study: judges the numbers of its seeds, in order.

`p` is the smallest level at which the interval would still decide, times .05 / the level of the
look. So a look decides if p ≤ .05.
Seeds that do not meet the premise do not count. A look with too few seeds that count decides
nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from bayesattn.stats import Interval
from bayesattn.verdicts.rule import (
    ERROR,
    LEVELS,
    LOOKS,
    Estimator,
    Limit,
    Rule,
    Transform,
    check_design,
    decide,
    ends_of,
    estimate,
)
from bayesattn.verdicts.values import Value, as_array

LEARNT = 0.75
"""Share of a look's seeds that must meet the premise."""
LEAST = 1e-15
"""Smallest p that is reported, because of rounding."""
POWER = 1000.0
"""A control must differ by this many tolerances, or the identity was not really tested."""


class Outcome(StrEnum):
    """Outcome of a statement."""

    YES = "yes"
    NO = "no"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Judgement:
    """An outcome, the numbers of its look, and the reason in one sentence."""

    outcome: Outcome
    reason: str
    value: float | None = None
    """Mean, geometric mean (log) or pooled proportion; None where too few seeds met the premise."""
    interval: Interval | None = None
    """Interval of the look; None before the first look, and for identities."""
    p: float | None = None
    """p of a decision, at most `ERROR`; None if undecided, and for identities."""
    comparator: float | None = None
    """The comparator's number: the same kind of mean over the same seeds."""
    seeds: int = 0
    """Number of seeds at the look."""
    counted: int = 0
    """Number of these seeds that meet the premise."""
    level: float | None = None
    """Level of the interval."""


def judge(
    values: Sequence[Value],
    *,
    transform: Transform,
    rule: Rule,
    limit: Limit,
    looks: Sequence[int] = LOOKS[0],
    resolution: float = 0.0,
) -> Judgement:
    """The judgement of the first look that decides, from the seeds in their order.

    Args:
        values: one value for each seed.
        transform: identity (t on values), log (t on logs) or proportion (Counts, pairs of Counts).
        rule: above, below or within.
        limit: least effect of interest; for within the margin's two ends.
        looks: one of `LOOKS`.
        resolution: smallest step of the values on the transformed scale; 0 for none.
    """
    check_design(transform, rule, limit, looks)
    found = _too_few(values, transform, looks[0])
    for seeds, level in zip(looks, LEVELS, strict=True):
        if seeds > len(values):
            break
        found = _look(values[:seeds], transform, rule, limit, level, resolution)
        if found.outcome is not Outcome.UNDECIDED:
            break
    return found


def judge_identity(values: Sequence[Value], *, limit: float) -> Judgement:
    """Yes if no effect exceeds `limit` and every comparator exceeds `POWER` · `limit`.

    An effect is the largest error of a seed. Its comparator is the same difference where the
    identity is false. It must be large, otherwise the comparison could not fail.
    """
    if not values:
        return Judgement(Outcome.UNDECIDED, "No seed was measured.")
    if any(isinstance(one.effect, tuple) or one.comparator is None for one in values):
        raise ValueError("an identity needs a number and a comparator from every seed")
    worst = float(np.max([one.effect for one in values]))
    weakest = float(np.min([one.comparator for one in values if one.comparator is not None]))
    found = f"The largest error {worst:.2g}"
    if not worst <= limit:  # so that NaN fails
        outcome, reason = Outcome.NO, f"{found} exceeds the tolerance {limit:g}."
    elif not weakest > POWER * limit:
        outcome = Outcome.UNDECIDED
        reason = f"The control differs by only {weakest:.2g}, so the comparison could not fail."
    else:
        outcome = Outcome.YES
        reason = f"{found} is within the tolerance {limit:g}; the control gives {weakest:.2g}."
    count = len(values)
    return Judgement(outcome, reason, worst, comparator=weakest, seeds=count, counted=count)


def _look(
    values: Sequence[Value],
    transform: Transform,
    rule: Rule,
    limit: Limit,
    level: float,
    resolution: float,
) -> Judgement:
    counted = [one for one in values if one.learnt]
    if len(counted) < LEARNT * len(values):
        met = f"{len(counted)} of {len(values)} seeds met it, three quarters must"
        reason = f"The premise fails: {met}."
        return Judgement(Outcome.UNDECIDED, reason, seeds=len(values), counted=len(counted))
    found = estimate(as_array([one.effect for one in counted]), transform, resolution)
    seen = _undecided(values, counted, found, transform)
    low, high = (float(end[0]) for end in found.interval(1 - level))
    if np.isnan(low):
        reason = "All seeds are equal, which says nothing of how much they vary: "
        return replace(seen, reason=reason + "register a resolution, counts or an identity.")
    yes, no = decide(found, rule, limit, level)
    outcome = Outcome.YES if yes[0] else Outcome.NO if no[0] else Outcome.UNDECIDED
    return replace(
        seen,
        outcome=outcome,
        reason=_reason(Interval(low, high), rule, limit, level, outcome, len(counted)),
        interval=Interval(low, high),
        p=_smallest_level(found, rule, limit, level) * ERROR / level if yes[0] or no[0] else None,
        level=1 - level,
    )


def _smallest_level(found: Estimator, rule: Rule, limit: Limit, level: float) -> float:
    """Smallest level of an interval that still decides: the two-sided p of this study."""
    low, high = np.log(LEAST), np.log(level)
    while high - low > 1e-9:
        middle = (low + high) / 2
        decided = any(one[0] for one in decide(found, rule, limit, float(np.exp(middle))))
        low, high = (low, middle) if decided else (middle, high)
    return float(np.exp(high))


def _reason(
    interval: Interval, rule: Rule, limit: Limit, level: float, outcome: Outcome, count: int
) -> str:
    low, high = ends_of(limit)
    shown = (
        f"The {1 - level:.1%} interval of {count} seeds, [{interval.low:.3g}, {interval.high:.3g}],"
    )
    if rule == "within":
        words = {Outcome.YES: "lies inside", Outcome.NO: "lies outside"}
        return f"{shown} {words.get(outcome, 'reaches over an end of')} [{low:.3g}, {high:.3g}]."
    if outcome is Outcome.UNDECIDED:
        return f"{shown} holds the limit {low:.3g}."
    above = (outcome is Outcome.YES) == (rule == "above")
    return f"{shown} lies {'above' if above else 'below'} the limit {low:.3g}."


def _too_few(values: Sequence[Value], transform: Transform, needed: int) -> Judgement:
    """A judgement before the first look: the value so far, without interval."""
    reason = f"{len(values)} of the {needed} seeds of the first look are there."
    counted = [one for one in values if one.learnt]
    if not counted:
        return Judgement(Outcome.UNDECIDED, reason, seeds=len(values))
    found = estimate(as_array([one.effect for one in counted]), transform)
    return replace(_undecided(values, counted, found, transform), reason=reason)


def _undecided(
    values: Sequence[Value], counted: Sequence[Value], found: Estimator, transform: Transform
) -> Judgement:
    """A judgement with the numbers, undecided so far."""
    return Judgement(
        Outcome.UNDECIDED,
        reason="",
        value=float(found.value[0]),
        comparator=_comparator(counted, transform),
        seeds=len(values),
        counted=len(counted),
    )


def _comparator(values: Sequence[Value], transform: Transform) -> float | None:
    """Mean of the comparators over seeds that have one; geometric on the log scale."""
    there = [one.comparator for one in values if one.comparator is not None]
    if not there:
        return None
    logs = transform == "log" and min(there) > 0
    return float(np.exp(np.mean(np.log(there))) if logs else np.mean(there))
