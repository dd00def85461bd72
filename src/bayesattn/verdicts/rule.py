"""The rule: yes if the interval over seeds lies on the statement's side of its limit.

    above   yes: low > limit             no: high < limit
    below   yes: high < limit            no: low > limit
    within  yes: inside [least, most]    no: wholly outside (two one-sided tests)

There are three looks, after 4, 8 and 12 seeds or after 8, 16 and 32, with intervals of level
1 - .003, 1 - .015 and 1 - .037. The first look that decides is final. If the truth is at the
limit, any decision is an error: with normal seeds this happens in at most 5 % of studies, all looks
together. `docs/verdicts.md` has simulated rates of these and other cases, some above 5 %.

This file handles many studies at once, as arrays; `judgement.py` judges one study.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bayesattn.verdicts.means import Mean, of_numbers
from bayesattn.verdicts.proportions import Difference, Proportion, of_counts, of_pairs
from bayesattn.verdicts.values import Array

ERROR = 0.05
"""Largest share of decisions if the truth is at the limit."""
LEVELS = (0.003, 0.015, 0.037)
"""Two-sided levels of the looks; together they err in a share `ERROR`."""
LOOKS = ((4, 8, 12), (8, 16, 32))
"""Seeds at each look. The levels were checked for these."""

Transform = Literal["identity", "log", "proportion"]
Rule = Literal["above", "below", "within"]
Limit = float | Sequence[float]
Estimator = Mean | Proportion | Difference
Booleans = NDArray[np.bool_]


def estimate(effects: Array, transform: Transform, resolution: float = 0.0) -> Estimator:
    """Estimates of the means of studies [studies, seeds, …], see `as_array`."""
    if transform != "proportion":
        if effects.ndim != 2:
            raise ValueError(f"counts are judged as a proportion, not by {transform!r}")
        return of_numbers(effects, logs=transform == "log", resolution=resolution)
    if effects.ndim == 2:
        raise ValueError("a proportion needs Counts of successes and trials, not numbers")
    return of_pairs(effects) if effects.shape[2] == 2 else of_counts(effects[:, :, 0])


def decide(found: Estimator, rule: Rule, limit: Limit, level: float) -> tuple[Booleans, Booleans]:
    """Whether a look at `level` says yes, and whether no; neither if seeds show no spread."""
    least, most = ends_of(limit)
    low, high = found.interval(1 - level)
    if rule == "within":
        return (low > least) & (high < most), (high < least) | (low > most)
    above, below = low > least, high < least
    return (above, below) if rule == "above" else (below, above)


def outcomes(
    effects: Array,
    transform: Transform,
    rule: Rule,
    limit: Limit,
    looks: Sequence[int],
    resolution: float = 0.0,
) -> tuple[Array, Array]:
    """[studies] 1 where the first look that decides says yes, and 1 where it says no."""
    yes, no = np.zeros(len(effects)), np.zeros(len(effects))
    for seeds, level in zip(looks, LEVELS, strict=True):
        (left,) = np.nonzero(yes + no == 0)
        for some in np.array_split(left, len(left) // 500 + 1):
            if some.size:
                found = estimate(effects[some, :seeds], transform, resolution)
                yes[some], no[some] = decide(found, rule, limit, level)
    return yes, no


def check_design(transform: str, rule: str, limit: Limit, looks: Sequence[int]) -> None:
    """Refuse an invalid design in one sentence."""
    if transform not in ("identity", "log", "proportion"):
        raise ValueError(f"transform must be identity, log or proportion, not {transform!r}")
    if rule not in ("above", "below", "within"):
        raise ValueError(f"rule must be above, below or within, not {rule!r}")
    if tuple(looks) not in LOOKS:
        raise ValueError(f"looks must be 4, 8, 12 or 8, 16, 32, not {tuple(looks)}")
    two = not isinstance(limit, int | float)
    if two != (rule == "within") or (two and len(limit) != 2):
        needs = "the two ends of a margin" if rule == "within" else "one number"
        raise ValueError(f"rule {rule!r} needs {needs} as limit, not {limit!r}")
    low, high = ends_of(limit)
    if not (np.isfinite(low) and np.isfinite(high)) or (two and not low < high):
        raise ValueError(f"limit must be finite, its lower end first, not {limit!r}")
    if transform == "log" and low <= 0:
        raise ValueError(f"on the log scale a limit must be positive, not {limit!r}")
    if transform == "proportion" and not -1 <= low <= high <= 1:
        raise ValueError(f"the limit of a proportion is a share, 0.9 and not 90, not {limit!r}")


def ends_of(limit: Limit) -> tuple[float, float]:
    """Both ends of a margin, or the one limit twice."""
    if isinstance(limit, int | float):
        return float(limit), float(limit)
    low, high = limit
    return float(low), float(high)
