"""The value of one seed for a statement, and values of many seeds as arrays."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Count(NamedTuple):
    """Successes and trials of one seed."""

    successes: int
    trials: int


Effect = float | Count | tuple[Count, Count]


@dataclass(frozen=True)
class Value:
    """The value of one seed for one statement."""

    effect: Effect
    """The judged number, already compared with its comparator: a difference, a ratio (log scale),
    a Count for a proportion, or a pair of Counts for the first proportion minus the second. For an
    identity: the largest error."""
    comparator: float | None = None
    """The comparator's number, shown beside the effect. For an identity: the same difference where
    the identity is false."""
    learnt: bool = True
    """Whether every compared arm of this seed met the statement's premise."""


def as_array(effects: Sequence[Effect]) -> Array:
    """One study: [1, seeds] numbers, or [1, seeds, counts, 2] successes and trials.

    Stacked studies of the same form are the arrays of the rule.
    """
    forms = {_form(effect) for effect in effects}
    if len(forms) != 1:
        raise ValueError(f"all seeds need effects of one form, not {' and '.join(sorted(forms))}")
    rows = [[effect] if isinstance(effect, Count) else effect for effect in effects]
    array = np.asarray(rows, dtype=np.float64)[None]
    if not np.isfinite(array).all():
        raise ValueError("effects must be finite: one of them is NaN or infinite")
    if array.ndim > 2:
        successes, trials = array[..., 0], array[..., 1]
        if not ((successes >= 0) & (successes <= trials) & (trials > 0)).all():
            raise ValueError("successes must lie in 0..trials, with at least one trial a seed")
    return array


def _form(effect: Effect) -> str:
    if isinstance(effect, Count):
        return "counts"
    return "pairs of counts" if isinstance(effect, tuple) else "numbers"
