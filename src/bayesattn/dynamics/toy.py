"""Two small problems for one head: five tokens with random labels, and a sticky Markov chain.

In the chain the head sees noisy observations of past symbols and predicts the next one. The exact
chain is `StickyChain`; the published generator added the probability of staying twice, so that it
was 0.35 instead of 0.30 and every loss looked closer to its floor.
"""

import math
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from bayesattn.dynamics.head import Head, Weights
from bayesattn.tunnels import StickyChain


class Problem(NamedTuple):
    """What a head is trained or tested on; leading dimensions are sequences of their own."""

    x: Tensor
    """[..., T, d_x]."""
    labels: Tensor
    """[..., T]."""
    log_prior: Tensor | None = None
    """[T, T] -inf where a key is hidden; None if all see all."""

    def head(self, weights: Weights) -> Head:
        """This problem under these weights; the loss is a mean over positions, in nats."""
        return Head(self.x, *weights, labels=self.labels, log_prior=self.log_prior)


class Sizes(NamedTuple):
    """Widths of a head."""

    x: int
    k: int
    v: int
    outcomes: int


TOY = Sizes(3, 2, 2, 3)
CHAIN = Sizes(20, 10, 15, 8)
START = 0.1
"""Standard deviation of the weights before training."""


def draw_weights(sizes: Sizes, generator: Generator, dtype: torch.dtype = torch.float32) -> Weights:
    """Small Gaussian weights."""
    shapes = (
        (sizes.k, sizes.x),
        (sizes.k, sizes.x),
        (sizes.v, sizes.x),
        (sizes.outcomes, sizes.v),
    )
    return Weights(
        *(START * torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes)
    )


def five_tokens(generator: Generator, dtype: torch.dtype = torch.float64) -> Problem:
    """Five Gaussian tokens with labels of no meaning, everyone sees everyone: to be memorised."""
    x = torch.randn(5, TOY.x, generator=generator, dtype=dtype)
    return Problem(x, torch.randint(TOY.outcomes, (5,), generator=generator))


def chain_problem(
    length: int, generator: Generator, sequences: int | None = None, stay: float = 0.3
) -> Problem:
    """Fresh paths of the sticky chain, causal.

    Args:
        length: T.
        generator: of the paths and the noise; the means of the symbols are always the same.
        sequences: None gives [T, d_x], a number [sequences, 1, T, d_x], so that several weights
            [R, ...] can be tested on all sequences at once.
        stay: probability of staying.
    """
    chain = StickyChain(symbols=CHAIN.outcomes, stay=stay, length=length, width=CHAIN.x)
    batch = chain.sample(sequences or 1, generator)
    future = torch.full((length, length), -math.inf).triu(1)
    if sequences is None:
        return Problem(batch.inputs[0], batch.labels[0], future)
    return Problem(batch.inputs[:, None], batch.labels[:, None], future)


def chain_floor(stay: float = 0.3) -> float:
    """H(y_t | y_{t-1}) in nats: no predictor of a long fresh sequence does better."""
    return StickyChain(symbols=CHAIN.outcomes, stay=stay).conditional_entropy * math.log(2)
