"""Draws from a distribution with a conjugate prior: predict the next draw.

    dice     p ~ Dirichlet(a, …, a), every x ~ p           P(next = j) = (a + n_j) / (C a + n)
    markov   rows T_i ~ Dirichlet(a, …, a), a chain        P(next = j) = (a + n_ij) / (C a + n_i)
    labels   y a fair coin, every x = y with chance alpha  p = 1 / (1 + (alpha / (1 - alpha))^-d)
                                                           P(next = 0) = alpha p + (1-alpha)(1-p)

n_j of the n draws so far were j, n_ij of the n_i moves from the present state i went to j, and
d = n_0 - n_1. The parameter is fresh in every sequence. A coin with an unknown bias is a die with
two faces; `labels` is SULA without words, a coin with one of two known biases.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from bayesattn.checks import fields_at_least
from bayesattn.tunnels.base import Batch, Shape, Tunnel
from bayesattn.tunnels.sampling import Rows, integers, sample_chain, uniform


@dataclass(frozen=True)
class Draws(Tunnel):
    """Base: inputs x_1 … x_L, and after each the next one is predicted."""

    length: int = 24

    @property
    @abstractmethod
    def kinds(self) -> int:
        """C: number of different draws."""

    @property
    def shape(self) -> Shape:
        return Shape(self.kinds, self.length, range(self.length), vocabulary=self.kinds)

    def _split(self, drawn: Tensor) -> Batch:
        """The batch of draws [B, L + 1]."""
        return self._batch(drawn[:, :-1].contiguous(), drawn[:, 1:].contiguous())

    def _counts(self, inputs: Tensor) -> Tensor:
        """[B, L, C] counts of each draw up to and including each position."""
        self._check_inputs(inputs)
        return one_hot(inputs, self.kinds).double().cumsum(1)


@dataclass(frozen=True)
class Dice(Draws, name="dice"):
    """A die with unknown probabilities.

    Args:
        length: Number of throws shown.
        faces: Number of faces; 2 is a coin.
        concentration: Of the Dirichlet distribution of the probabilities.
    """

    faces: int = 2
    concentration: float = 1.0

    def __post_init__(self) -> None:
        fields_at_least(self, length=1, faces=2)
        _rows(self.concentration).check(self.faces)

    @property
    def kinds(self) -> int:
        return self.faces

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        chances = _rows(self.concentration).sample((batch_size, self.faces), generator)
        drawn = chances.multinomial(self.length + 1, replacement=True, generator=generator)
        return self._split(drawn)

    def exact(self, inputs: Tensor) -> Tensor:
        return _normalised(self._counts(inputs) + self.concentration)


@dataclass(frozen=True)
class Markov(Draws, name="markov"):
    """A Markov chain with unknown transition probabilities; its first state is uniform.

    Args:
        length: Number of states shown.
        states: Number of different states.
        concentration: Of the Dirichlet distribution of the rows.
    """

    states: int = 3
    concentration: float = 0.5

    def __post_init__(self) -> None:
        fields_at_least(self, length=1, states=2)
        _rows(self.concentration).check(self.states)

    @property
    def kinds(self) -> int:
        return self.states

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        shape = (batch_size, self.states, self.states)
        transition = _rows(self.concentration).sample(shape, generator)
        first = integers(self.states, (batch_size,), generator)
        return self._split(sample_chain(first, transition, self.length + 1, generator))

    def exact(self, inputs: Tensor) -> Tensor:
        self._check_inputs(inputs)
        shown = one_hot(inputs, self.states).double()
        moves = torch.zeros(*inputs.shape, self.states, self.states, dtype=torch.float64)
        moves = moves.to(inputs.device)
        moves[:, 1:] = (shown[:, :-1, :, None] * shown[:, 1:, None]).cumsum(1)
        own = (moves * shown[..., None]).sum(2)  # the row of the present state
        return _normalised(own + self.concentration)


@dataclass(frozen=True)
class Labels(Draws, name="labels"):
    """Noisy copies of a label that is never shown.

    Args:
        length: Number of labels shown.
        alpha: Probability that a shown label equals the hidden one.
    """

    alpha: float = 0.9

    def __post_init__(self) -> None:
        fields_at_least(self, length=1)
        if not 0.5 < self.alpha < 1:
            raise ValueError(f"alpha must lie between 0.5 and 1, not {self.alpha}")

    @property
    def kinds(self) -> int:
        return 2

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        hidden = integers(2, (batch_size, 1), generator)
        flipped = uniform((batch_size, self.length + 1), generator) >= self.alpha
        return self._split(hidden ^ flipped.long())

    def exact(self, inputs: Tensor) -> Tensor:
        counts = self._counts(inputs)
        first = predictive(counts[..., 0] - counts[..., 1], self.alpha)
        return torch.stack([first, 1 - first], dim=-1)


def posterior(difference: Tensor, alpha: float) -> Tensor:
    """P(hidden label = first | d)."""
    return torch.sigmoid(difference.double() * math.log(alpha / (1 - alpha)))


def predictive(difference: Tensor, alpha: float) -> Tensor:
    """P(next label = first | d)."""
    p = posterior(difference, alpha)
    return alpha * p + (1 - alpha) * (1 - p)


def _rows(concentration: float) -> Rows:
    return Rows(concentration, min_prob=0.0, grid=None)


def _normalised(weights: Tensor) -> Tensor:
    return weights / weights.sum(-1, keepdim=True)
