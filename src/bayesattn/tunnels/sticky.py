"""A sticky Markov chain seen through noise: predict the next symbol.

    P(y_t = i | y_{t-1} = i) = stay,    the rest ∝ 1 / circular distance
    x_t = μ[y_{t-1}] + noise · N(0, I)

Inputs are x_1 .. x_L, and position t predicts y_t: filter the belief about y_{t-1} with Gaussian
likelihoods, then apply the transition once. Without noise the answer is a row of the matrix. The
chain and the means are fixed, so a model can learn the dynamics; the hidden path is the unknown.
"""

import math
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from bayesattn.bits import entropy
from bayesattn.checks import fields_at_least
from bayesattn.tunnels.base import Batch, Shape, Tunnel
from bayesattn.tunnels.filtering import FilteredStates, filter_likelihoods
from bayesattn.tunnels.sampling import integers


@dataclass(frozen=True)
class StickyChain(Tunnel, name="sticky"):
    """One fixed chain, a fresh path per sequence.

    Args:
        symbols: Number of symbols, on a circle.
        stay: Probability that a symbol is followed by itself, exactly.
        length: Number of observations.
        width: Dimensions of an observation.
        noise: Standard deviation of the noise.
        means_seed: Seed of the means μ ~ N(0, I).
    """

    symbols: int = 8
    stay: float = 0.3
    length: int = 100
    width: int = 20
    noise: float = 1.0
    means_seed: int = 0

    def __post_init__(self) -> None:
        fields_at_least(self, symbols=2, length=1, width=1, means_seed=0)
        if not 0 <= self.stay <= 1:
            raise ValueError(f"stay is a probability between 0 and 1, not {self.stay}")
        if not 0 <= self.noise < math.inf:
            raise ValueError(f"noise must be 0 or positive, not {self.noise}")

    @property
    def shape(self) -> Shape:
        return Shape(self.symbols, self.length, range(self.length), features=self.width)

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
        """H(y_t | y_{t-1}) in bits: the entropy of a symbol, given the last one."""
        return entropy(self.transition)[0].item()

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        device, count = generator.device, (batch_size, self.length)
        # The chain is the same from every symbol, so a path is a sum of independent steps.
        first = integers(self.symbols, (batch_size, 1), generator)
        chance = self.transition[0].to(device)
        steps = chance.multinomial(math.prod(count), replacement=True, generator=generator)
        path = torch.cat([first, steps.view(count)], dim=1).cumsum(1) % self.symbols
        noise = torch.randn(*count, self.width, generator=generator, device=device)
        inputs = self.means.to(device)[path[:, :-1]] + self.noise * noise
        return self._batch(inputs, path[:, 1:].contiguous(), path=path)

    def exact(self, inputs: Tensor) -> Tensor:
        """[B, L, symbols]: belief about the next symbol."""
        return self._filter(inputs).predicted[:, 1:].contiguous()

    def beliefs(self, inputs: Tensor) -> Tensor:
        """[B, L, symbols]: belief about the symbol behind each observation."""
        return self._filter(inputs).filtered

    def _filter(self, inputs: Tensor) -> FilteredStates:
        self._check_inputs(inputs)
        transition = self.transition.to(inputs.device)
        initial = torch.full_like(transition[0], 1 / self.symbols)
        return filter_likelihoods(initial, transition, self._likelihoods(inputs))

    def _likelihoods(self, inputs: Tensor) -> Tensor:
        """[B, L, symbols] ∝ exp(-|x - μ|² / (2 noise²)), scaled so the largest per step is 1."""
        means = self.means.to(inputs.device).double()
        # |x|² is common to all symbols and cancels.
        squares = means.square().sum(-1) - 2 * inputs.double() @ means.T
        squares = squares - squares.amin(-1, keepdim=True)
        if self.noise == 0:
            return (squares == 0).double()
        return (squares / (-2 * self.noise**2)).exp()


@cache
def _means(symbols: int, width: int, seed: int) -> Tensor:
    return torch.randn(symbols, width, generator=torch.Generator().manual_seed(seed))
