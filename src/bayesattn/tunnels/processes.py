"""Fixed processes with a hidden state: predict the next token.

    T[x, i, j] = P(token x, next state j | state i)
    belief_0 = π,    belief_t ∝ belief_{t-1} T[x_t]
    P(x_{t+1} = x | x_1 .. x_t) = Σ_ij belief_t(i) T[x, i, j]

π is the stationary distribution: a sequence starts in the middle of the process. These are the
tasks of belief geometry (Shai et al. 2024, "Transformers represent belief state geometry in their
residual stream", arXiv 2405.15943), with that paper's parameters as defaults.

The process is the same in every sequence; only the path is fresh. So a model can memorise the
matrices, and, if there are few words, the answers.
"""

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from bayesattn.checks import fields_at_least
from bayesattn.tunnels.base import TOLERANCE, Batch, Shape, Tunnel
from bayesattn.tunnels.filtering import filter_words
from bayesattn.tunnels.sampling import sample_chain, sample_symbols

SQUARINGS = 64
"""Number of squarings of a transition matrix: after 2^64 steps it no longer changes."""

ALIKE = 1e-9
"""Probabilities that differ by less than this count as equal."""


@dataclass(frozen=True)
class Process(Tunnel):
    """Base of processes: a subclass gives the labelled transition matrices.

    Two kinds are refused: tokens that show the state, and tokens without information about the
    next one.
    """

    length: int = 10

    @property
    @abstractmethod
    def matrices(self) -> Tensor:
        """[tokens, states, states] float64: P(token, next state | state)."""

    def __post_init__(self) -> None:
        fields_at_least(self, length=1)
        matrices = self.matrices
        moves = matrices.sum(0)
        if bool((matrices < 0).any() | ((moves.sum(1) - 1).abs() > TOLERANCE).any()):
            raise ValueError(f"the probabilities of {self.name} must add up to 1 in every state")
        if bool(((_limit(moves) - self.stationary).abs() > TOLERANCE).any()):
            raise ValueError(
                f"the states of {self.name} fall into unconnected parts: join them, or leave "
                "one part out"
            )
        if _observable(matrices, self.stationary):
            raise ValueError(
                f"the last tokens of this {self.name} process show its state, so there is nothing "
                "to infer: choose one whose state stays hidden"
            )
        if _memoryless(matrices, self.stationary):
            raise ValueError(
                f"the tokens of this {self.name} process tell nothing about the next one, so there "
                "is nothing to infer: choose other probabilities"
            )

    @property
    def shape(self) -> Shape:
        tokens = len(self.matrices)
        return Shape(tokens, self.length, range(self.length), vocabulary=tokens)

    @property
    def states(self) -> int:
        return self.matrices.shape[1]

    @cached_property
    def stationary(self) -> Tensor:
        """[states] π = π Σ_x T[x]."""
        return _limit(self.matrices.sum(0))[0]

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        """Inputs x_1 .. x_L, labels x_2 .. x_{L+1}, and the states after each input."""
        matrices = self.matrices.to(generator.device)
        tokens, states, _ = matrices.shape
        # A token together with the state after it is a Markov chain.
        pairs = matrices.transpose(0, 1).flatten(1)
        first = (self.stationary.to(pairs.device) @ pairs).expand(batch_size, -1)
        chain = pairs.repeat(tokens, 1).expand(batch_size, -1, -1)
        path = sample_chain(sample_symbols(first, generator), chain, self.length + 1, generator)
        said, hidden = path // states, path % states
        inputs, labels = (said[:, part].contiguous() for part in (slice(-1), slice(1, None)))
        return self._batch(inputs, labels, states=hidden[:, :-1])

    def exact(self, inputs: Tensor) -> Tensor:
        """[B, L, tokens]: belief about the next token; NaN after a word of probability 0."""
        return self.beliefs(inputs) @ self.matrices.sum(2).T.to(inputs.device)

    def beliefs(self, inputs: Tensor) -> Tensor:
        """[B, L, states]: belief about the state after each token."""
        self._check_inputs(inputs)
        return filter_words(self.stationary, self.matrices, inputs)


@dataclass(frozen=True)
class Mess3(Process, name="mess3"):
    """Three states, three tokens, beliefs on a fractal: the state moves, then emits a noisy token.

        P(j | i) = x for j ≠ i, else 1 - 2x,    P(token j | next state j) = alpha, else (1-alpha)/2

    The next token's distribution is an invertible linear image of the belief.

    Args:
        length: Number of tokens shown.
        x: Probability of moving to each of the other states.
        alpha: Probability that the new state emits its own token.
    """

    x: float = 0.05
    alpha: float = 0.85

    def __post_init__(self) -> None:
        if not 0 < self.x <= 0.5:
            raise ValueError(f"x must be above 0 and at most 1/2, not {self.x}")
        if not 0 <= self.alpha <= 1:
            raise ValueError(f"alpha is a probability between 0 and 1, not {self.alpha}")
        super().__post_init__()

    @property
    def matrices(self) -> Tensor:
        own = torch.eye(3, dtype=torch.float64)
        moves = self.x + (1 - 3 * self.x) * own
        rest = (1 - self.alpha) / 2
        shown = rest + (self.alpha - rest) * own
        return moves * shown[:, None]


@dataclass(frozen=True)
class RRXOR(Process, name="rrxor"):
    """Two random bits, then their exclusive or, and again; the phase of a sequence is hidden.

    States: before the first bit; the first bit was 0; the first bit was 1; the third bit will be 1;
    the third bit will be 0. The next token's distribution does not determine the belief.

    Args:
        length: Number of tokens shown.
        first: Probability that the first bit is 0.
        second: Probability that the second bit is 0.
    """

    first: float = 0.5
    second: float = 0.5

    def __post_init__(self) -> None:
        for name in ("first", "second"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(
                    f"{name} is a probability above 0 and below 1, not {getattr(self, name)}"
                )
        super().__post_init__()

    @property
    def matrices(self) -> Tensor:
        start, zero, one, true, false = range(5)
        matrices = torch.zeros(2, 5, 5, dtype=torch.float64)
        matrices[0, start, zero], matrices[1, start, one] = self.first, 1 - self.first
        matrices[0, zero, false], matrices[1, zero, true] = self.second, 1 - self.second
        matrices[0, one, true], matrices[1, one, false] = self.second, 1 - self.second
        matrices[1, true, start] = matrices[0, false, start] = 1
        return matrices


def _limit(moves: Tensor) -> Tensor:
    """[states, states]: distribution over states after each state, averaged over all times.

    Each step is skipped with probability 1/2, so periods do not matter. Products are written out,
    because those of a library may differ by rounding from call to call.
    """
    limit = (moves + torch.eye(len(moves), dtype=moves.dtype)) / 2
    for _ in range(SQUARINGS):
        limit = (limit[:, :, None] * limit).sum(1)
        limit = limit / limit.sum(1, keepdim=True)
    return limit


def _observable(matrices: Tensor, stationary: Tensor) -> bool:
    """Whether all words of some length determine the state.

    Two states are both possible after some word of n tokens if the same token leads to them from
    two states that are possible after n - 1 tokens. The number of such pairs falls with n until it
    is constant.
    """
    steps, possible = (matrices > 0).double(), (stationary > TOLERANCE).double()
    together = possible[:, None] * possible
    for _ in range(together.numel()):
        together = (steps.transpose(1, 2) @ together @ steps).sum(0).gt(0).double()
    return not bool((together - together.diag().diag()).any())


def _memoryless(matrices: Tensor, stationary: Tensor) -> bool:
    """Whether the next token has the same distribution after every word.

    Beliefs of all words lie in the span of words shorter than the number of states.
    """
    tokens, states, _ = matrices.shape
    words = torch.cartesian_prod(*[torch.arange(tokens)] * (states - 1)).view(-1, states - 1)
    chances = matrices.sum(2).T
    after = filter_words(stationary, matrices, words) @ chances
    alike = (after - stationary @ chances).abs() < ALIKE
    return bool((alike | after.isnan()).all())
