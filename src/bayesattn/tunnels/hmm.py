"""Belief transport: track the hidden state of a fresh hidden Markov model.

    filtered_0(j) ∝ 1/S · E[j, o_0],    filtered_t(j) ∝ E[j, o_t] · Σ_i filtered_{t-1}(i) · T[i, j]

Every sequence has its own transition matrix T and emission matrix E, shown in a header, so a model
cannot memorise the filter. The target at o_t is the belief about the state s_t. The header shows
the same rounded matrices from which states and observations are drawn and from which the posterior
is computed, so the network can read all the information that the posterior uses.

Two layouts show the matrices in a header and then the observations; step t is scored where o_t is
shown. Shapes: S states, O symbols, K steps.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad

from bayesattn.checks import fields_at_least, one_of
from bayesattn.tunnels.base import Batch, Shape, Tunnel
from bayesattn.tunnels.filtering import filter_states
from bayesattn.tunnels.sampling import Rows, integers, sample_chain, sample_observations

Header = Literal["rows", "tokens"]


class _Layout(NamedTuple):
    states: int
    symbols: int
    length: int
    rows: Rows


class RowLayout(_Layout):
    """One position per matrix row, then one per observation; float32 features.

    Features: [log T row (S) | log E row (O) | row index (S) | observed symbol (O)], the last two
    one-hot. Features that do not apply to a position are zero. T = 2·S + K positions.
    """

    @property
    def shape(self) -> Shape:
        prefix = 2 * self.states
        positions = prefix + self.length
        features = 2 * (self.states + self.symbols)
        scored = range(prefix, positions)
        return Shape(self.states, positions, scored, features=features, prefix=prefix)

    def header(self, transition: Tensor, emission: Tensor) -> Tensor:
        """[B, 2S, F] from [B, S, S] and [B, S, O]."""
        states, symbols = self.states, self.symbols
        shape = (len(transition), 2 * states, 2 * (states + symbols))
        header = torch.zeros(shape, device=transition.device)
        header[:, :states, :states] = transition.log()
        header[:, states:, states : states + symbols] = emission.log()
        index = torch.eye(states, device=header.device)
        header[:, :states, states + symbols : -symbols] = index
        header[:, states:, states + symbols : -symbols] = index
        return header

    def matrices(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Transition and emission matrix, float64, as the header shows them."""
        states, columns = self.states, slice(self.states, self.states + self.symbols)
        return (
            self.rows.read(inputs[:, :states, :states]),
            self.rows.read(inputs[:, states : 2 * states, columns]),
        )

    def steps(self, observations: Tensor) -> Tensor:
        """[B, K, F] from [B, K]."""
        blank = 2 * self.states + self.symbols
        return pad(one_hot(observations, self.symbols).float(), (blank, 0))

    def observations(self, inputs: Tensor) -> Tensor:
        return inputs[:, self.shape.prefix :, -self.symbols :].argmax(-1)


class TokenLayout(_Layout):
    """[TRANS] T [EMIT] E [SEP] ([OBS] o_t) × K, one token per matrix entry, row by row.

    Tokens: one per probability of the grid, the least first, then TRANS, EMIT, SEP, OBS, then
    the symbols. With 5 states, 5 symbols, hundredths from 0.05 on: vocabulary 105, header 53.
    """

    @property
    def shape(self) -> Shape:
        prefix = self.states * (self.states + self.symbols) + 3
        positions = prefix + 2 * self.length
        vocabulary = self._special + 4 + self.symbols
        scored = range(prefix + 1, positions, 2)
        return Shape(self.states, positions, scored, vocabulary=vocabulary, prefix=prefix)

    @property
    def _special(self) -> int:
        """The token TRANS."""
        return self._units - self.rows.least + 1

    @property
    def _units(self) -> int:
        assert self.rows.units is not None, "tokens need a grid"
        return self.rows.units

    def header(self, transition: Tensor, emission: Tensor) -> Tensor:
        """[B, prefix] from [B, S, S] and [B, S, O]."""
        mark = torch.full((len(transition), 1), self._special, device=transition.device)
        entries = [
            (matrix * self._units).round().long().flatten(1) - self.rows.least
            for matrix in (transition, emission)
        ]
        return torch.cat([mark, entries[0], mark + 1, entries[1], mark + 2], dim=1)

    def matrices(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Transition and emission matrix, float64."""
        states, symbols = self.states, self.symbols
        entries = (inputs[:, : self.shape.prefix] + self.rows.least).double() / self._units
        middle = 1 + states * states
        return (
            entries[:, 1:middle].reshape(-1, states, states),
            entries[:, middle + 1 : -1].reshape(-1, states, symbols),
        )

    def steps(self, observations: Tensor) -> Tensor:
        """[B, 2K] from [B, K]."""
        tokens = observations + (self._special + 4)
        return torch.stack([torch.full_like(tokens, self._special + 3), tokens], dim=2).flatten(1)

    def observations(self, inputs: Tensor) -> Tensor:
        return inputs[:, self.shape.prefix + 1 :: 2] - (self._special + 4)


@dataclass(frozen=True)
class HMM(Tunnel, name="hmm"):
    """A fresh hidden Markov model per sequence.

    Args:
        states: Number of hidden states.
        symbols: Number of symbols that can be observed.
        length: Number of observations.
        header: Show a matrix row per position as log-probabilities, or a matrix entry per token.
        alpha: Concentration of the Dirichlet distribution of matrix rows.
        min_prob: Smallest probability.
        grid: Probabilities are multiples of this; None leaves them continuous.
    """

    states: int = 5
    symbols: int = 5
    length: int = 20
    header: Header = "rows"
    alpha: float = 1.0
    min_prob: float = 0.05
    grid: float | None = 0.01

    def __post_init__(self) -> None:
        fields_at_least(self, states=2, symbols=2, length=1)
        one_of("header", self.header, get_args(Header))
        if self.header == "tokens" and self.grid is None:
            raise ValueError("header='tokens' needs a grid of probabilities, for example 0.01")
        self._rows.check(max(self.states, self.symbols))

    @property
    def shape(self) -> Shape:
        return self._layout.shape

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        header = self._layout.header(
            self._rows.sample((batch_size, self.states, self.states), generator),
            self._rows.sample((batch_size, self.states, self.symbols), generator),
        )
        transition, emission = self._layout.matrices(header)
        first = integers(self.states, (batch_size,), generator)
        states = sample_chain(first, transition, self.length, generator)
        observations = sample_observations(states, emission, generator)
        return self._shown(torch.cat([header, self._layout.steps(observations)], dim=1), states)

    def exact(self, inputs: Tensor) -> Tensor:
        self._check_inputs(inputs)
        transition, emission = self._layout.matrices(inputs)
        initial = torch.full_like(transition[:, 0], 1 / self.states)
        observations = self._layout.observations(inputs)
        return filter_states(initial, transition, emission, observations).filtered

    def beliefs(self, inputs: Tensor) -> Tensor:
        """The posterior of this tunnel is the belief."""
        return self.exact(inputs)

    def encode(self, transition: Tensor, emission: Tensor, observations: Tensor) -> Tensor:
        """Inputs that show these matrices [B, S, S], [B, S, O] and observations [B, K]."""
        self._check_matrix("transition", transition, self.states)
        self._check_matrix("emission", emission, self.symbols)
        if observations.shape[1:] != (self.length,):
            raise ValueError(
                f"observations have the shape [batch, {self.length}], not "
                f"{list(observations.shape)}"
            )
        if not bool(((observations >= 0) & (observations < self.symbols)).all()):
            raise ValueError(f"observations must lie in 0..{self.symbols - 1}")
        header = self._layout.header(transition, emission)
        return torch.cat([header, self._layout.steps(observations)], dim=1)

    def relabel(self, batch: Batch, permutation: Tensor) -> Batch:
        """The same sequences with state i called permutation[i]; permutation [S] or [B, S].

            T'[σi, σj] = T[i, j],    E'[σi, o] = E[i, o],    posterior'(σi) = posterior(i)

        The posterior is computed anew, from the new inputs.
        """
        new = permutation.to(batch.labels.device).expand(len(batch.labels), -1)
        old = new.argsort(1)
        rows = old[:, :, None]
        transition = batch.metadata["transition"].gather(1, rows.expand(-1, -1, self.states))
        transition = transition.gather(2, old[:, None].expand(-1, self.states, -1))
        emission = batch.metadata["emission"].gather(1, rows.expand(-1, -1, self.symbols))
        inputs = self.encode(transition, emission, batch.metadata["observations"])
        return self._shown(inputs, new.gather(1, batch.labels))

    @property
    def _rows(self) -> Rows:
        return Rows(self.alpha, self.min_prob, self.grid)

    @property
    def _layout(self) -> RowLayout | TokenLayout:
        layout = RowLayout if self.header == "rows" else TokenLayout
        return layout(self.states, self.symbols, self.length, self._rows)

    def _shown(self, inputs: Tensor, states: Tensor) -> Batch:
        transition, emission = self._layout.matrices(inputs)
        observations = self._layout.observations(inputs)
        return self._batch(
            inputs, states, transition=transition, emission=emission, observations=observations
        )

    def _check_matrix(self, name: str, matrix: Tensor, columns: int) -> None:
        if matrix.dim() != 3 or matrix.shape[1:] != (self.states, columns):
            raise ValueError(
                f"{name} has the shape [batch, {self.states}, {columns}], not {list(matrix.shape)}"
            )
        matrix = matrix.double()
        if not bool(((matrix.sum(-1) - 1).abs() < 1e-6).all() & (matrix > 0).all()):
            raise ValueError(f"every row of {name} must be positive probabilities that sum to 1")
        units = self._rows.units
        if units is None:
            return
        off = ((matrix * units).round() / units - matrix).abs().max().item()
        if off > 1e-6 or matrix.min().item() < self.min_prob - 1e-6:
            raise ValueError(
                f"every entry of {name} must be a multiple of {self.grid} and at least "
                f"{self.min_prob}; use grid=None for other probabilities"
            )
