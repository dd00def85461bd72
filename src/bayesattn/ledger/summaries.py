"""From the numbers of all seeds to what a verdict or a figure needs."""

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np

from bayesattn.ledger.study import Numbers
from bayesattn.stats import Judgement, Outcome, judge_all, judge_below


def first(numbers: Mapping[int, Numbers]) -> Numbers:
    """What the first seed measured."""
    return next(iter(numbers.values()))


def by_seed(numbers: Mapping[int, Numbers], name: str) -> list[float]:
    """One number per seed."""
    return [cast(float, found[name]) for found in numbers.values()]


def average(numbers: Mapping[int, Numbers], name: str) -> float:
    """Mean over seeds."""
    return float(np.mean(by_seed(numbers, name)))


def curve(numbers: Mapping[int, Numbers], name: str) -> list[float]:
    """Mean over seeds of a list of numbers."""
    return np.mean([cast(Sequence[float], found[name]) for found in numbers.values()], 0).tolist()


def judge_errors(errors: Mapping[str, Sequence[float]], *, limit: float) -> tuple[str, Judgement]:
    """Every named error must lie below the limit; the largest one, which decides, by name."""
    parts = {name: judge_below(values, limit=limit) for name, values in errors.items()}
    ordered = dict(sorted(parts.items(), key=lambda item: -item[1].value))
    worst = next(iter(ordered))
    judgement = judge_all(ordered)
    if judgement.outcome is Outcome.SUPPORTED:  # all hold
        judgement = judgement._replace(reason=f"{worst}: {judgement.reason}")
    return worst, judgement
