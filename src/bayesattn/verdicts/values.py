"""What one seed says about a statement, and many of them as arrays."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Count(NamedTuple):
    """So many successes among so many trials of one seed."""

    successes: int
    trials: int


Effect = float | Count | tuple[Count, Count]


@dataclass(frozen=True)
class Value:
    """What one seed says about one statement."""

    effect: Effect
    """The number that is judged, already against its comparator: a difference, a ratio (log scale),
    a Count for a proportion, a pair of Counts for the first proportion minus the second. Of an
    identity: the largest error."""
    comparator: float | None = None
    """The comparator's own number, shown beside it. Of an identity: the same difference where it is
    false."""
    learnt: bool = True
    """Whether every compared arm of this seed met the statement's premise."""


def as_array(effects: Sequence[Effect]) -> Array:
    """[1, seeds] of numbers, or [1, seeds, counts, 2] of successes and trials: a study of its own.

    Studies of the same form, one below the other, make the arrays that the rule works on.
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
