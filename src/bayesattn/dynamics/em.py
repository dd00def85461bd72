"""Two timescales: one gradient step with a learning rate of its own for V, Q, K and O.

    W_V ← W_V - η_v ∂L/∂W_V          "M-step": values move along responsibility-weighted errors
    W   ← W   - η   ∂L/∂W            for Q, K and O

What is published as an EM-like schedule computes both gradients from one forward pass, so it is SGD
with two rates. The schedule with two forwards really alternates: it looks again after the value
step. Neither solves for the best values, as the M-step of EM would.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import torch
from torch import Tensor

from bayesattn.dynamics.head import Weights
from bayesattn.dynamics.toy import Problem

FAST = 10.0
"""How much larger the published learning rate of the values is than that of the rest."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Multiples of one base learning rate, and how often a step looks."""

    query: float = 1.0
    key: float = 1.0
    value: float = 1.0
    output: float = 1.0
    forwards: Literal[1, 2] = 1
    """2: the values step first, then the rest from a second forward pass."""

    def __post_init__(self) -> None:
        if self.forwards not in (1, 2):
            raise ValueError(f"forwards must be 1 or 2, not {self.forwards}")

    def rates(self, base: float | Tensor) -> Weights:
        """The learning rate of each matrix."""
        return Weights(base * self.query, base * self.key, base * self.value, base * self.output)

    @property
    def work(self) -> int:
        """Products with a T × T matrix in one step: what a step costs on a long sequence.

        Scores, context, ū, b and the gradients of q and k; a second look has scores and context.
        """
        return 6 if self.forwards == 1 else 8


SGD = "SGD"
EM = "EM-like"
TWO_FORWARDS = "EM-like, two forwards"
SCHEDULES: Mapping[str, Schedule] = MappingProxyType(
    {
        SGD: Schedule(),
        EM: Schedule(value=FAST),
        TWO_FORWARDS: Schedule(value=FAST, forwards=2),
        "output fast": Schedule(output=FAST),
        "queries and keys fast": Schedule(query=FAST, key=FAST),
    }
)


def step(problem: Problem, weights: Weights, schedule: Schedule, base: float | Tensor) -> Weights:
    """Weights after one step; the loss is the mean over all sequences of the problem.

    Args:
        problem: what is trained on.
        weights: [R, out, in] each, or without R.
        schedule: see the class.
        base: learning rate, one number or [R, 1, 1].
    """
    rates = schedule.rates(base)
    head = problem.head(weights)
    w_v = weights.w_v - rates.w_v * _mean(head.grad_w_v, weights)
    if schedule.forwards == 2:
        head = problem.head(weights._replace(w_v=w_v))
    return Weights(
        weights.w_q - rates.w_q * _mean(head.grad_w_q, weights),
        weights.w_k - rates.w_k * _mean(head.grad_w_k, weights),
        w_v,
        weights.w_o - rates.w_o * _mean(head.grad_w_o, weights),
    )


def step_of_norm(
    problem: Problem, weights: Weights, schedule: Schedule, norm: float | Tensor
) -> Weights:
    """Weights after a step of given length |Δθ| over all matrices, in the schedule's direction.

    Between schedules only the direction then differs, whatever their multiples.
    """
    if schedule.forwards != 1:
        raise ValueError("a step of given norm has one direction; choose a schedule of one forward")
    head = problem.head(weights)
    gradients = (head.grad_w_q, head.grad_w_k, head.grad_w_v, head.grad_w_o)
    moves = [
        rate * _mean(gradient, weights)
        for rate, gradient in zip(schedule.rates(1.0), gradients, strict=True)
    ]
    squares = [move.square().sum((-2, -1), keepdim=True) for move in moves]
    scale = norm * torch.rsqrt(torch.stack(squares).sum(0))
    return Weights(*(w - scale * move for w, move in zip(weights, moves, strict=True)))


def _mean(gradient: Tensor, weights: Weights) -> Tensor:
    """Over the dimensions of sequences, which stand in front of those of the weights."""
    extra = gradient.dim() - weights.w_v.dim()
    return gradient.mean(tuple(range(extra))) if extra else gradient
