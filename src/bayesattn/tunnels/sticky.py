"""A sticky Markov chain seen through noise: predict the next symbol.

    P(y_t = i | y_{t-1} = i) = stay,    the rest ∝ 1 / circular distance
    x_t = μ[y_{t-1}] + noise · N(0, I)

Inputs are x_1 .. x_L, and position t predicts y_t: filter the belief about y_{t-1} with Gaussian
likelihoods, then apply the transition once. Without noise the answer is a row of the matrix. The
chain and the means are fixed, so this tunnel tests filtering with learned dynamics: its
hypotheses are the hidden paths.
"""

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar, Self

import torch
from torch import Tensor
from torch.nn.functional import embedding

from bayesattn.bits import entropy
from bayesattn.checks import at_least
from bayesattn.tunnels.base import Batch, Tunnel, stretched_length
from bayesattn.tunnels.filtering import filter_likelihoods


@dataclass(frozen=True)
class StickyChain(Tunnel):
    """One fixed chain, a fresh path per sequence."""

    name: ClassVar[str] = "sticky"

    symbols: int = 8
    """Number of symbols, on a circle."""
    stay: float = 0.3
    """Probability that a symbol is followed by itself, exactly."""
    length: int = 100
    """Number of observations."""
    width: int = 20
    """Dimensions of an observation."""
    noise: float = 1.0
    """Standard deviation of the noise."""
    means_seed: int = 0
    """Seed of the means μ ~ N(0, I)."""

    def __post_init__(self) -> None:
        at_least("symbols", self.symbols, 2)
        at_least("length", self.length, 1)
        at_least("width", self.width, 1)
        at_least("means_seed", self.means_seed, 0)
        if not 0 <= self.stay <= 1:
            raise ValueError(f"stay is a probability between 0 and 1, not {self.stay}")
        if not 0 <= self.noise < math.inf:
            raise ValueError(f"noise must be 0 or positive, not {self.noise}")

    @property
    def outcomes(self) -> int:
        """Symbols."""
        return self.symbols

    @property
    def features(self) -> int:
        """Dimensions of an observation."""
        return self.width

    @property
    def positions(self) -> int:
        """Observations."""
        return self.length

    @property
    def horizon(self) -> int:
        """Observations."""
        return self.length

    @property
    def scored(self) -> Tensor:
        """Every position."""
        return torch.arange(self.length)

    @property
    def hypothesis_bits(self) -> float:
        """log2 of the number of paths."""
        return self.length * math.log2(self.symbols)

    @property
    def transition(self) -> Tensor:
        """[symbols, symbols] float64, P(next | symbol)."""
        index = torch.arange(self.symbols, dtype=torch.float64)
        around = (index[:, None] - index).abs()
        distance = torch.minimum(around, self.symbols - around)
        # The diagonal is left out before normalising: adding `stay` to it afterwards would make
        # the true self-probability larger than stated.
        away = torch.where(distance > 0, 1 / distance, 0.0)
        away = away / away.sum(-1, keepdim=True)
        return (1 - self.stay) * away + self.stay * torch.eye(self.symbols, dtype=torch.float64)

    @property
    def means(self) -> Tensor:
        """[symbols, width] float32."""
        return _means(self.symbols, self.width, self.means_seed)

    @property
    def conditional_entropy(self) -> float:
        """H(y_t | y_{t-1}) in bits: what is left to guess when the last symbol is known."""
        return entropy(self.transition)[0].item()

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        """Path and noisy observations."""
        device = generator.device
        count = (batch_size, self.length)
        first = torch.randint(self.symbols, (batch_size, 1), generator=generator, device=device)
        # The chain is the same from every symbol, so a path is a sum of independent steps.
        chance = torch.rand(count, dtype=torch.float64, generator=generator, device=device)
        ends = self.transition[0].cumsum(0)[:-1].to(device)
        steps = torch.searchsorted(ends, chance, right=True)
        path = torch.cat([first, steps], dim=1).cumsum_(1).remainder_(self.symbols)
        noise = torch.randn(*count, self.width, generator=generator, device=device)
        inputs = noise.mul_(self.noise).add_(embedding(path[:, :-1], self.means.to(device)))
        posterior = self.exact(inputs)
        labels = path[:, 1:].contiguous()
        return Batch(inputs, self.scored.to(device), posterior, labels, {"path": path})

    def exact(self, inputs: Tensor) -> Tensor:
        """[B, L, symbols]: belief about the next symbol."""
        self._check_inputs(inputs)
        transition = self.transition.to(inputs.device)
        initial = torch.full_like(transition[0], 1 / self.symbols)
        beliefs = filter_likelihoods(initial, transition, self._likelihoods(inputs)).predicted
        return beliefs[:, 1:].contiguous()

    def stretched(self, factor: float) -> Self:
        """A longer path."""
        return replace(self, length=stretched_length(self.length, factor))

    def _likelihoods(self, inputs: Tensor) -> Tensor:
        """[B, L, symbols] ∝ exp(-|x - μ|² / (2 noise²)), the largest at each step 1."""
        means = self.means.to(inputs.device).double()
        # |x|² is common to all symbols: it is left out.
        squares = means.square().sum(-1) - 2 * inputs.double() @ means.T
        squares -= squares.amin(-1, keepdim=True)
        if self.noise == 0:
            return (squares == 0).double()
        return (squares / (-2 * self.noise**2)).exp()


@cache
def _means(symbols: int, width: int, seed: int) -> Tensor:
    return torch.randn(symbols, width, generator=torch.Generator().manual_seed(seed))
