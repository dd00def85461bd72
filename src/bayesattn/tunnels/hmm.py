"""Belief transport: track the hidden state of a fresh hidden Markov model.

    filtered_0(j) ∝ 1/S · E[j, o_0],    filtered_t(j) ∝ E[j, o_t] · Σ_i filtered_{t-1}(i) · T[i, j]

Every sequence has its own transition matrix T and emission matrix E, shown in a header, so the
filter cannot be memorised, only run. The target at o_t is the belief about the state s_t. States
and observations are drawn from the matrices as the header shows them, and the posterior uses the
same ones: there is no precision that the network could not have read.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from bayesattn.checks import fields_at_least, one_of
from bayesattn.tunnels.base import Batch, Tunnel
from bayesattn.tunnels.filtering import filter_states
from bayesattn.tunnels.layouts import RowLayout, TokenLayout
from bayesattn.tunnels.sampling import (
    check_grid,
    integers,
    row_bits,
    sample_chain,
    sample_observations,
    sample_rows,
    units_of,
)

Header = Literal["rows", "tokens"]


@dataclass(frozen=True)
class HMM(Tunnel):
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

    name: ClassVar[str] = "hmm"

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
        check_grid(max(self.states, self.symbols), self.alpha, self.min_prob, self.grid)

    @property
    def outcomes(self) -> int:
        return self.states

    @property
    def vocabulary(self) -> int | None:
        return self._layout.vocabulary

    @property
    def features(self) -> int | None:
        return self._layout.features

    @property
    def prefix(self) -> int:
        return self._layout.prefix

    @property
    def positions(self) -> int:
        return self._layout.positions

    @property
    def scored(self) -> Tensor:
        return self._layout.scored

    @property
    def hypothesis_bits(self) -> float:
        """log2 of the number of pairs of matrices on the grid."""
        columns = (self.states, self.symbols)
        return self.states * sum(row_bits(count, self.min_prob, self.grid) for count in columns)

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        drawn = [
            sample_rows(
                (batch_size, self.states, columns),
                generator,
                alpha=self.alpha,
                min_prob=self.min_prob,
                units=units_of(self.grid),
            )
            for columns in (self.states, self.symbols)
        ]
        header = self._layout.header(*drawn)
        transition, emission = self._layout.matrices(header)
        first = integers(self.states, (batch_size,), generator)
        states = sample_chain(first, transition, self.length, generator)
        observations = sample_observations(states, emission, generator)
        return self._batch(torch.cat([header, self._layout.steps(observations)], dim=1), states)

    def exact(self, inputs: Tensor) -> Tensor:
        self._check_inputs(inputs)
        transition, emission = self._layout.matrices(inputs)
        initial = torch.full_like(transition[:, 0], 1 / self.states)
        observations = self._layout.observations(inputs)
        return filter_states(initial, transition, emission, observations).filtered

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
        return self._batch(inputs, new.gather(1, batch.labels))

    @property
    def _layout(self) -> RowLayout | TokenLayout:
        units = units_of(self.grid)
        if self.header == "rows" or units is None:
            return RowLayout(self.states, self.symbols, self.length, units)
        least = round(self.min_prob * units)
        return TokenLayout(self.states, self.symbols, self.length, units, least)

    def _batch(self, inputs: Tensor, states: Tensor) -> Batch:
        transition, emission = self._layout.matrices(inputs)
        metadata = {
            "transition": transition,
            "emission": emission,
            "observations": self._layout.observations(inputs),
        }
        return Batch(inputs, self.scored.to(inputs.device), self.exact(inputs), states, metadata)

    def _check_matrix(self, name: str, matrix: Tensor, columns: int) -> None:
        if matrix.dim() != 3 or matrix.shape[1:] != (self.states, columns):
            raise ValueError(
                f"{name} has the shape [batch, {self.states}, {columns}], not {list(matrix.shape)}"
            )
        matrix = matrix.double()
        if not bool(((matrix.sum(-1) - 1).abs() < 1e-6).all() & (matrix > 0).all()):
            raise ValueError(f"every row of {name} must be positive probabilities that sum to 1")
        units = units_of(self.grid)
        if units is None:
            return
        off = ((matrix * units).round() / units - matrix).abs().max().item()
        if off > 1e-6 or matrix.min().item() < self.min_prob - 1e-6:
            raise ValueError(
                f"every entry of {name} must be a multiple of {self.grid} and at least "
                f"{self.min_prob}; use grid=None for other probabilities"
            )
