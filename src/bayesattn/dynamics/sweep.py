"""One schedule at many learning rates at once, evaluated on held-out sequences.

All losses are in nats. A run that diverges has NaN or infinite losses in its row only: rows are
independent.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from bayesattn.dynamics.em import Problem, Schedule, step, step_of_norm
from bayesattn.dynamics.head import Weights

CACHED = 2**16
"""Largest number of attention weights of rates that are trained at once, to fit in the cache."""

SHARE = 0.9
"""Share of the common fall of two curves at which they are compared."""


class Curves(NamedTuple):
    """[R, E] float64 each: R learning rates, E evaluations; mean over sequences and positions."""

    loss: Tensor
    """Cross-entropy, nats."""
    accuracy: Tensor
    """Share of positions whose most probable symbol is the right one."""
    entropy: Tensor
    """Entropy of the predictions, nats."""


def descend(
    problem: Problem,
    start: Weights,
    schedule: Schedule,
    rates: Sequence[float],
    *,
    at: Sequence[int],
    watched: Mapping[str, Problem],
    equal_norm: bool = False,
) -> dict[str, Curves]:
    """Train at every rate from the same start; returns curves by name of the watched problem.

    Args:
        problem: the training sequence; each step uses all of it.
        start: initial weights [out, in].
        schedule: multiples of the rate for each matrix.
        rates: base learning rates; with `equal_norm`, lengths of the steps.
        at: steps of the evaluations, increasing, 0 for the start; training ends at the last one.
        watched: problems for the evaluations; `sequences` [N, 1, T, d_x] are averaged.
        equal_norm: see `step_of_norm`.
    """
    if any(rate <= 0 for rate in rates) or list(at) != sorted(set(at)):
        raise ValueError("rates must be positive and the steps to look after must increase")
    entries = problem.labels.numel() * problem.labels.shape[-1]
    together = max(1, CACHED // entries)
    take = step_of_norm if equal_norm else step
    found: dict[str, list[Curves]] = {name: [] for name in watched}
    for first in range(0, len(rates), together):
        base = start.w_v.new_tensor(rates[first : first + together])[:, None, None]
        weights = Weights(*(w.expand(len(base), *w.shape) for w in start))
        looks: dict[str, list[Curves]] = {name: [] for name in watched}
        for before, stop in pairwise([0, *at]):
            with torch.no_grad():
                for _ in range(before, stop):
                    weights = take(problem, weights, schedule, base)
                for name, other in watched.items():
                    looks[name].append(measure(other, weights))
        for name, curves in looks.items():
            found[name].append(_joined(curves, partial(torch.stack, dim=-1)))
    return {name: _joined(curves, torch.cat) for name, curves in found.items()}


def measure(problem: Problem, weights: Weights) -> Curves:
    """[R] each, of weights [R, out, in]."""
    log_p = problem.head(weights).log_probabilities.double()
    labels = problem.labels.expand(log_p.shape[:-1])
    loss = -log_p.gather(-1, labels[..., None])[..., 0]
    accuracy = (log_p.argmax(-1) == labels).double()
    entropy = -(log_p.exp() * log_p).sum(-1)
    return Curves(*(_by_rate(part) for part in (loss, accuracy, entropy)))


def best_rate(curves: Curves) -> int:
    """Index of the rate with the lowest loss, averaged over the whole training.

    The average does not favour a rate for its last step, such as a slow rate, or a fast rate that
    then fits the training sequence.
    """
    mean = curves.loss.mean(-1)
    if not bool(mean.isfinite().any()):
        raise ValueError("the loss diverged at every rate; try smaller ones")
    return int(torch.where(mean.isfinite(), mean, math.inf).argmin())


def steps_to(loss: Tensor, at: Sequence[float], target: float) -> float:
    """Steps until a loss curve [E], linear between evaluations, is first at or below `target`.

    Infinite if it never is.
    """
    values = loss.tolist()
    for index, value in enumerate(values):
        if value <= target:
            if index == 0:
                return float(at[0])
            before = values[index - 1]
            share = (before - target) / (before - value)
            return at[index - 1] + share * (at[index] - at[index - 1])
    return math.inf


def doublings(
    first: Tensor, second: Tensor, at: Sequence[int], *, share: float = SHARE, cost: float = 1.0
) -> float:
    """log2 of the steps of `first` over those of `second` [E] to a target loss: 1 is twice as fast.

    The target is `share` of the way from the initial loss (mean of both) to the higher of their
    lowest losses, which both reach. Exchanging the curves changes the sign.

    Args:
        first: losses after the steps `at`.
        second: losses after the steps `at`.
        at: steps.
        share: below 1, because the time at which a curve reaches its flat end is random.
        cost: of a step of `second`, in steps of `first`; both have the same budget.
    """
    paid = [steps * cost for steps in at]
    second = second[: sum(price <= at[-1] for price in paid)]
    start = (first[0] + second[0]).item() / 2
    target = start - share * (start - max(first.min().item(), second.min().item()))
    sooner = [steps_to(first, at, target), steps_to(second, paid, target)]
    one, other = (max(steps, 1.0) for steps in sooner)
    return math.log2(one / other)


def times_as_fast(first: Tensor, second: Tensor, at: Sequence[int]) -> float:
    """The authors' measure: total steps over those of `second` [E] to the final loss of `first`.

    Below 1 if `second` never reaches it: the steps of `first` to the final loss of `second`, over
    the total steps.
    """
    ends = [curve[-1].item() for curve in (first, second)]
    if ends[1] > ends[0]:
        return 1 / times_as_fast(second, first, at)
    return at[-1] / max(steps_to(second, at, ends[0]), 1.0)


def _by_rate(part: Tensor) -> Tensor:
    """Mean over positions, and over sequences in front of the rates."""
    return part.mean(-1) if part.dim() == 2 else part.mean(-1).flatten(0, -2).mean(0)


def _joined(curves: list[Curves], join: Callable[[tuple[Tensor, ...]], Tensor]) -> Curves:
    return Curves(*(join(parts) for parts in zip(*curves, strict=True)))
