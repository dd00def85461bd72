"""How a hidden Markov model and its observations become the inputs of a network.

Both layouts show the transition matrix T and the emission matrix E in a header and then the
observations; the step t is scored where o_t is shown. Shapes: S states, O symbols, K steps.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from bayesattn.tunnels.sampling import read_logs


@dataclass(frozen=True)
class RowLayout:
    """One position per matrix row, then one per observation; float32 features.

    Features: [log T row (S) | log E row (O) | row index (S) | observed symbol (O)], the last two
    one-hot; whatever does not apply to a position is zero. T = 2·S + K positions.
    """

    states: int
    symbols: int
    length: int
    units: int | None
    """Probabilities are multiples of 1 / units; None if they are not on a grid."""

    vocabulary = None

    @property
    def features(self) -> int:
        return 2 * (self.states + self.symbols)

    @property
    def prefix(self) -> int:
        return 2 * self.states

    @property
    def positions(self) -> int:
        return self.prefix + self.length

    @property
    def scored(self) -> Tensor:
        return torch.arange(self.prefix, self.positions)

    def header(self, transition: Tensor, emission: Tensor) -> Tensor:
        """[B, 2S, F] from [B, S, S] and [B, S, O]."""
        states, symbols = self.states, self.symbols
        header = transition.new_zeros(len(transition), self.prefix, self.features).float()
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
            read_logs(inputs[:, :states, :states], self.units),
            read_logs(inputs[:, states : 2 * states, columns], self.units),
        )

    def steps(self, observations: Tensor) -> Tensor:
        """[B, K, F] from [B, K]."""
        count, length = observations.shape
        steps = torch.zeros(count, length, self.features, device=observations.device)
        seen = observations[..., None] + (self.features - self.symbols)
        return steps.scatter_(2, seen, 1.0)

    def observations(self, inputs: Tensor) -> Tensor:
        return inputs[:, self.prefix :, -self.symbols :].argmax(-1)


@dataclass(frozen=True)
class TokenLayout:
    """[TRANS] T [EMIT] E [SEP] ([OBS] o_t) × K, one token per matrix entry, row by row.

    Tokens: one per probability from `least` to `units` units, then TRANS, EMIT, SEP, OBS, then
    the symbols. With 5 states, 5 symbols, hundredths from 0.05 on: vocabulary 105, header 53.
    """

    states: int
    symbols: int
    length: int
    units: int
    least: int

    features = None

    @property
    def _special(self) -> int:
        return self.units - self.least + 1

    @property
    def vocabulary(self) -> int:
        return self._special + 4 + self.symbols

    @property
    def prefix(self) -> int:
        return self.states * (self.states + self.symbols) + 3

    @property
    def positions(self) -> int:
        return self.prefix + 2 * self.length

    @property
    def scored(self) -> Tensor:
        return torch.arange(self.prefix + 1, self.positions, 2)

    def header(self, transition: Tensor, emission: Tensor) -> Tensor:
        """[B, prefix] from [B, S, S] and [B, S, O]."""
        mark = torch.full((len(transition), 1), self._special, device=transition.device)
        entries = [
            (matrix * self.units).round().long().flatten(1) - self.least
            for matrix in (transition, emission)
        ]
        return torch.cat([mark, entries[0], mark + 1, entries[1], mark + 2], dim=1)

    def matrices(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Transition and emission matrix, float64."""
        states, symbols = self.states, self.symbols
        entries = (inputs[:, : self.prefix] + self.least).double() / self.units
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
        return inputs[:, self.prefix + 1 :: 2] - (self._special + 4)
