"""Belief transport: track the hidden state of a fresh hidden Markov model.

    filtered_0(j) ∝ 1/S · E[j, o_0],    filtered_t(j) ∝ E[j, o_t] · Σ_i filtered_{t-1}(i) · T[i, j]

Every sequence has its own transition matrix T and emission matrix E, shown in a header, so the
filter cannot be memorised, only run. The target at o_t is the belief about the state s_t. States
and observations are drawn from the matrices as the header shows them, and the posterior uses the
same ones: there is no precision that the network could not have read.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor

from bayesattn.checks import at_least, one_of
from bayesattn.tunnels.base import Batch, Tunnel, stretched_length
from bayesattn.tunnels.chains import sample_chain, sample_observations
from bayesattn.tunnels.filtering import filter_states
from bayesattn.tunnels.layouts import RowLayout, TokenLayout
from bayesattn.tunnels.matrices import check_grid, grid_rows, sample_rows, units_of

HEADERS = ("rows", "tokens")


@dataclass(frozen=True)
class HMM(Tunnel):
    """A fresh hidden Markov model per sequence."""

    name: ClassVar[str] = "hmm"

    states: int = 5
    """Number of hidden states."""
    symbols: int = 5
    """Number of symbols that can be observed."""
    length: int = 20
    """Number of observations."""
    header: Literal["rows", "tokens"] = "rows"
    """Show a matrix row per position as log-probabilities, or a matrix entry per token."""
    alpha: float = 1.0
    """Concentration of the Dirichlet distribution of matrix rows."""
    min_prob: float = 0.05
    """Smallest probability."""
    grid: float | None = 0.01
    """Probabilities are multiples of this; None leaves them continuous."""

    def __post_init__(self) -> None:
        at_least("states", self.states, 2)
        at_least("symbols", self.symbols, 2)
        at_least("length", self.length, 1)
        one_of("header", self.header, HEADERS)
        if self.header == "tokens" and self.grid is None:
            raise ValueError("header='tokens' needs a grid of probabilities, for example 0.01")
        check_grid(max(self.states, self.symbols), self.alpha, self.min_prob, self.grid)

    @property
    def outcomes(self) -> int:
        """Hidden states."""
        return self.states

    @property
    def vocabulary(self) -> int | None:
        """Tokens, if the header is of tokens."""
        return self._layout.vocabulary

    @property
    def features(self) -> int | None:
        """Width, if the header is of rows."""
        return self._layout.features

    @property
    def prefix(self) -> int:
        """The header."""
        return self._layout.prefix

    @property
    def positions(self) -> int:
        """Header and observations."""
        return self._layout.positions

    @property
    def horizon(self) -> int:
        """Observations."""
        return self.length

    @property
    def scored(self) -> Tensor:
        """Where the observations are shown."""
        return self._layout.scored()

    @property
    def hypothesis_bits(self) -> float:
        """log2 of the number of pairs of matrices on the grid."""
        transition = grid_rows(self.states, self.min_prob, self.grid)
        emission = grid_rows(self.symbols, self.min_prob, self.grid)
        return self.states * (transition + emission)

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        """Matrices, header, state paths, observations, beliefs."""
        layout, device = self._layout, generator.device
        header = layout.header(
            self._matrix(batch_size, self.states, generator),
            self._matrix(batch_size, self.symbols, generator),
        )
        transition, emission = layout.matrices(header)
        first = torch.randint(self.states, (batch_size,), generator=generator, device=device)
        states = sample_chain(first, transition, self.length, generator)
        observations = sample_observations(states, emission, generator)
        inputs = torch.cat([header, layout.steps(observations)], dim=1)
        return Batch(
            inputs,
            self.scored.to(device),
            self._filter(transition, emission, observations),
            states,
            {"transition": transition, "emission": emission, "observations": observations},
        )

    def exact(self, inputs: Tensor) -> Tensor:
        """[B, K, S] belief about the state, from header and observations."""
        self._check_inputs(inputs)
        layout = self._layout
        return self._filter(*layout.matrices(inputs), layout.observations(inputs))

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
        layout = self._layout
        return torch.cat([layout.header(transition, emission), layout.steps(observations)], dim=1)

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
        observations = batch.metadata["observations"]
        inputs = self.encode(transition, emission, observations)
        return Batch(
            inputs,
            batch.scored,
            self.exact(inputs),
            new.gather(1, batch.labels),
            {"transition": transition, "emission": emission, "observations": observations},
        )

    def stretched(self, factor: float) -> Self:
        """More observations of the same models."""
        return replace(self, length=stretched_length(self.length, factor))

    @property
    def _layout(self) -> RowLayout | TokenLayout:
        units = units_of(self.grid)
        if self.header == "rows" or units is None:
            return RowLayout(self.states, self.symbols, self.length, units)
        least = round(self.min_prob * units)
        return TokenLayout(self.states, self.symbols, self.length, units, least)

    def _matrix(self, count: int, columns: int, generator: torch.Generator) -> Tensor:
        shape = (count, self.states, columns)
        return sample_rows(
            shape, generator, alpha=self.alpha, min_prob=self.min_prob, units=units_of(self.grid)
        )

    def _filter(self, transition: Tensor, emission: Tensor, observations: Tensor) -> Tensor:
        initial = torch.full((self.states,), 1 / self.states, dtype=torch.float64)
        initial = initial.to(observations.device)
        return filter_states(initial, transition, emission, observations).filtered

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
