"""A head trained by gradient descent, with separate learning rates for V, Q, K and O.

    W_V ← W_V - η_v ∂L/∂W_V          "M-step": values move along responsibility-weighted errors
    W   ← W   - η   ∂L/∂W            for Q, K and O

The published EM-like schedule computes both gradients from one forward pass, so it is SGD
with two rates. The schedule with two forward passes really alternates: the second pass follows the
value step. Neither solves for the best values, as the M-step of EM would.

The problem is a sticky Markov chain: the head sees noisy observations of past symbols and predicts
the next one. The exact chain is `StickyChain`. The published generator added the probability of
staying twice, so it was 0.35 instead of 0.30, and every loss looked closer to its lower bound.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, NamedTuple

import torch
from torch import Generator, Tensor

from bayesattn.dynamics.head import Head, Weights
from bayesattn.tunnels import StickyChain

FAST = 10.0
"""Ratio of the published learning rate of the values to that of the other weights."""


class Problem(NamedTuple):
    """Training or test data of a head; leading dimensions are separate sequences."""

    x: Tensor
    """[..., T, d_x]."""
    labels: Tensor
    """[..., T]."""
    log_prior: Tensor | None = None
    """[T, T] -inf where a key is hidden; None if all see all."""

    def head(self, weights: Weights) -> Head:
        return Head(self.x, *weights, labels=self.labels, log_prior=self.log_prior)


class Sizes(NamedTuple):
    """Widths of a head."""

    x: int
    k: int
    v: int
    outcomes: int


CHAIN = Sizes(20, 10, 15, 8)
START = 0.1
"""Standard deviation of the weights before training."""


def initial_weights(
    sizes: Sizes, generator: Generator, dtype: torch.dtype = torch.float32
) -> Weights:
    keys, values, outputs = (sizes.k, sizes.x), (sizes.v, sizes.x), (sizes.outcomes, sizes.v)
    return Weights(
        *(
            START * torch.randn(shape, generator=generator, dtype=dtype)
            for shape in (keys, keys, values, outputs)
        )
    )


def chain_problem(length: int, generator: Generator, sequences: int | None = None) -> Problem:
    """Fresh paths of the sticky chain, causal.

    Args:
        length: T.
        generator: of the paths and the noise; the means of the symbols are always the same.
        sequences: None gives [T, d_x]; a number gives [sequences, 1, T, d_x], so several weights
            [R, ...] can be tested on all sequences at once.
    """
    chain = StickyChain(symbols=CHAIN.outcomes, length=length, width=CHAIN.x)
    batch = chain.sample(sequences or 1, generator)
    future = torch.full((length, length), -math.inf).triu(1)
    if sequences is None:
        return Problem(batch.inputs[0], batch.labels[0], future)
    return Problem(batch.inputs[:, None], batch.labels[:, None], future)


def chain_floor() -> float:
    """H(y_t | y_{t-1}) in nats: no predictor of a long fresh sequence does better."""
    return StickyChain(symbols=CHAIN.outcomes).conditional_entropy * math.log(2)


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Multiples of one base learning rate, and number of forward passes per step."""

    query: float = 1.0
    key: float = 1.0
    value: float = 1.0
    output: float = 1.0
    forwards: Literal[1, 2] = 1
    """2: first the step of the values, then a second forward pass and the other steps."""

    def __post_init__(self) -> None:
        if self.forwards not in (1, 2):
            raise ValueError(f"forwards must be 1 or 2, not {self.forwards}")

    def rates(self, base: float | Tensor) -> Weights:
        return Weights(base * self.query, base * self.key, base * self.value, base * self.output)

    @property
    def work(self) -> int:
        """Products with a T × T matrix that a step needs: its cost on a long sequence.

        Scores, context, ū, b and the gradients of q and k; a second pass has scores and context.
        """
        return 6 if self.forwards == 1 else 8


SGD = "SGD"
EM = "EM-like"
TWO_FORWARDS = "EM-like, two forwards"
QUERIES_AND_KEYS = "queries and keys fast"
SCHEDULES: Mapping[str, Schedule] = MappingProxyType(
    {
        SGD: Schedule(),
        EM: Schedule(value=FAST),
        TWO_FORWARDS: Schedule(value=FAST, forwards=2),
        "output fast": Schedule(output=FAST),
        QUERIES_AND_KEYS: Schedule(query=FAST, key=FAST),
    }
)


def step(problem: Problem, weights: Weights, schedule: Schedule, base: float | Tensor) -> Weights:
    """Weights after one step; the loss is the mean over all sequences of the problem.

    Weights are [R, out, in] each and the learning rate `base` is [R, 1, 1]; or both without R.
    """
    rates = schedule.rates(base)
    moved = _moved(weights, rates, gradients(problem, weights))
    if schedule.forwards == 1:
        return moved
    looked_again = gradients(problem, weights._replace(w_v=moved.w_v))
    return _moved(weights, rates, looked_again)._replace(w_v=moved.w_v)


def step_of_norm(
    problem: Problem, weights: Weights, schedule: Schedule, norm: float | Tensor
) -> Weights:
    """Weights after a step of given length |Δθ| over all matrices, in the schedule's direction.

    Then schedules differ in direction only, for any multiples.
    """
    if schedule.forwards != 1:
        raise ValueError("a step of given norm has one direction; choose a schedule of one forward")
    directions = zip(schedule.rates(1.0), gradients(problem, weights), strict=True)
    moves = Weights(*(rate * gradient for rate, gradient in directions))
    squares = [move.square().sum((-2, -1), keepdim=True) for move in moves]
    scale = norm * torch.rsqrt(torch.stack(squares).sum(0))
    return _moved(weights, Weights(scale, scale, scale, scale), moves)


def gradients(problem: Problem, weights: Weights) -> Weights:
    """∂L/∂W of each matrix, averaged over the sequences, which stand in front of the weights."""
    found = problem.head(weights).gradients[:4]
    extra = tuple(range(found[0].dim() - weights.w_v.dim()))
    return Weights(*(gradient.mean(extra) if extra else gradient for gradient in found))


def _moved(weights: Weights, rates: Weights, along: Weights) -> Weights:
    return Weights(*(w - rate * move for w, rate, move in zip(weights, rates, along, strict=True)))
