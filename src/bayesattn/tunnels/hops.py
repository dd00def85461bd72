"""Chain of thought in a tunnel: apply a partly revealed permutation k times.

    x₁ y₁ … x_n y_n   QUERY x k   [ π(x) π²(x) … π^(k-1)(x) ]   ANSWER  →  π^k(x)

Every sequence has its own permutation π. It shows n pairs of π in random order, a query key x (one
of the shown keys), and a number of hops k from 1 to `hops`. If π leads to a key that is not
shown, the answer is uncertain; `walks.py` has its posterior. `mode` is the content of the scratch:

    direct     no scratch
    cot        each hop
    short      each second hop
    shuffled   the hops of another sequence, as many of them
    filler     as many blanks as cot has places; the model predicts none

Like the answer, each symbol of the scratch is predicted one position ahead. So each symbol has its
own posterior, given the symbols before it. Places after the last hop are blank; a blank is an
outcome.

A written symbol may contradict the pairs. `exact` accepts it: the walk continues from this symbol
with the revealed pairs, and ignores symbols written before. So `exact` is also defined for an
overwritten scratch.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple, Self, get_args

import torch
from torch import Tensor

from bayesattn.checks import fields_at_least, one_of
from bayesattn.tunnels.base import Batch, Shape, Tunnel
from bayesattn.tunnels.sampling import integers, random_orders
from bayesattn.tunnels.walks import (
    MOST_ORDERS,
    belief,
    count_orders,
    next_symbol,
    orders_of,
    walk,
)

Mode = Literal["direct", "cot", "filler", "shuffled", "short"]
WRITTEN = ("cot", "shuffled", "short")
"""Modes whose scratch is predicted."""
ROOM = 2**22
"""Entries of the permutations that are computed together: 32 MiB."""


class Episode(NamedTuple):
    """The parts of the inputs."""

    known: Tensor
    """[B, V] value of each key, -1 if it is not revealed."""
    query: Tensor
    """[B] query key."""
    hops: Tensor
    """[B] k."""
    scratch: Tensor
    """[B, places] tokens."""


@dataclass(frozen=True)
class Hops(Tunnel, name="hops"):
    """A permutation of `alphabet` symbols that is applied up to `hops` times.

    Args:
        alphabet: Number of symbols.
        hops: Largest number of hops; each sequence draws its number from 1 to this.
        revealed: Number of pairs shown; by default two less than the alphabet.
        mode: Content of the scratch: direct (no scratch), cot, filler, shuffled or short.
    """

    alphabet: int = 8
    hops: int = 4
    revealed: int | None = None
    mode: Mode = "cot"

    def __post_init__(self) -> None:
        fields_at_least(self, alphabet=2, hops=1)
        if self.revealed is None:
            object.__setattr__(self, "revealed", max(1, self.alphabet - 2))
        fields_at_least(self, revealed=1)
        if self._pairs > self.alphabet:
            raise ValueError(
                f"an alphabet of {self.alphabet} has no {self.revealed} pairs to reveal: "
                f"choose revealed from 1 to {self.alphabet}"
            )
        one_of("mode", self.mode, get_args(Mode))
        ways = count_orders(self.unrevealed, self.hops)
        if ways > MOST_ORDERS:
            raise ValueError(
                f"alphabet {self.alphabet} with {self.revealed} pairs revealed has {ways:,} ways "
                f"to go {self.hops} hops, and the exact posterior takes {MOST_ORDERS:,} at most: "
                "reveal more pairs, or choose a smaller alphabet or fewer hops"
            )

    @property
    def unrevealed(self) -> int:
        return self.alphabet - self._pairs

    @property
    def stride(self) -> int:
        """Hops from one place of the scratch to the next."""
        return 2 if self.mode == "short" else 1

    @property
    def places(self) -> int:
        """Places in the scratch."""
        return 0 if self.mode == "direct" else (self.hops - 1) // self.stride

    @property
    def written(self) -> Tensor:
        """Positions that a model writes itself, each predicted at the position before it."""
        return torch.arange(self._written.start, self._written.stop)

    @property
    def shape(self) -> Shape:
        """Outcomes are symbols, and the blank if the scratch is predicted.

        Tokens are keys, values, numbers of hops, QUERY, ANSWER and the blank.
        """
        answer = self._count_at + self.places + 1
        scored = [*(position - 1 for position in self._written), answer]
        outcomes = self.alphabet + (1 if self._written else 0)
        return Shape(outcomes, answer + 1, scored, vocabulary=self._blank + 1)

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        size, device = self.alphabet, generator.device
        # One more permutation and query than rows: `shuffled` shows the scratch of the next row.
        permutation = random_orders(batch_size + 1, size, generator)
        keys = random_orders(batch_size + 1, size, generator, take=self._pairs)
        chain = [keys.gather(1, integers(self._pairs, (batch_size + 1, 1), generator))]
        for _ in range(self.hops):
            chain.append(permutation.gather(1, chain[-1]))
        chains = torch.cat(chain, dim=1)
        own, other, permutation, keys = chains[:-1], chains[1:], permutation[:-1], keys[:-1]
        hops = 1 + integers(self.hops, (batch_size, 1), generator)
        pairs = torch.stack([keys, permutation.gather(1, keys) + size], dim=2).flatten(1)
        scratch = self._scratch(other if self.mode == "shuffled" else own, hops)
        query, answer = (torch.full_like(hops, mark) for mark in (self._query, self._query + 1))
        count = hops + (2 * size - 1)
        inputs = torch.cat([pairs, query, own[:, :1], count, scratch, answer], dim=1)
        written = inputs[:, self.written.to(device)]
        labels = torch.where(written == self._blank, size, written)
        labels = torch.cat([labels, own.gather(1, hops)], dim=1)
        return self._batch(inputs, labels, permutation=permutation, hops=hops[:, 0], chain=own)

    def exact(self, inputs: Tensor) -> Tensor:
        """[B, S, C] posterior of each written place and of the answer, given all earlier inputs."""
        return torch.cat([self._exact(self.read(rows)) for rows in self._split(inputs)])

    def marginal(self, inputs: Tensor) -> Tensor:
        """[B, C] posterior of the answer from pairs and query, without the scratch."""
        return torch.cat([self._answer_alone(self.read(rows)) for rows in self._split(inputs)])

    def read(self, inputs: Tensor) -> Episode:
        self._check_inputs(inputs)
        size, at = self.alphabet, self._count_at
        pairs = inputs[:, : at - 2]
        known = torch.full((len(inputs), size), -1, device=inputs.device)
        known.scatter_(1, pairs[:, ::2], pairs[:, 1::2] - size)
        hops = inputs[:, at] - (2 * size - 1)
        return Episode(known, inputs[:, at - 1], hops, inputs[:, at + 1 : -1])

    def spell(self, outcomes: Tensor) -> Tensor:
        """The tokens that write these outcomes into the scratch."""
        return torch.where(outcomes == self.alphabet, self._blank, outcomes)

    def stretched(self, factor: float) -> Self:
        """Refused: numbers of hops are tokens, and there is no token above `hops`."""
        if factor == 1:
            return self
        raise ValueError(
            f"this tunnel asks for at most {self.hops} hops and has no tokens for more: "
            "train with a larger hops"
        )

    @property
    def _pairs(self) -> int:
        assert self.revealed is not None
        return self.revealed

    @property
    def _count_at(self) -> int:
        """Position of the number of hops."""
        return 2 * self._pairs + 2

    @property
    def _written(self) -> range:
        first = self._count_at + 1
        return range(first, first + (self.places if self.mode in WRITTEN else 0))

    @property
    def _query(self) -> int:
        """The token QUERY; ANSWER and the blank follow it."""
        return 2 * self.alphabet + self.hops

    @property
    def _blank(self) -> int:
        return self._query + 2

    def _scratch(self, chains: Tensor, hops: Tensor) -> Tensor:
        """[B, places] tokens: hops of `chains` [B, hops + 1] before the last, then blanks."""
        at = self.stride * torch.arange(1, self.places + 1, device=chains.device)
        hidden = (at >= hops) | (self.mode == "filler")
        return chains[:, at].masked_fill(hidden, self._blank)

    def _split(self, inputs: Tensor) -> list[Tensor]:
        """Groups of sequences whose walks fit into memory."""
        entries = count_orders(self.unrevealed, self.hops) * self.alphabet
        return list(torch.split(inputs, max(1, ROOM // entries)))

    def _exact(self, episode: Episode) -> Tensor:
        if self.mode == "shuffled":
            steps = [*self._shuffled_posterior(episode), self._answer_alone(episode)]
        elif self.mode in WRITTEN:
            steps = self._scratch_posterior(episode)
        else:
            steps = [self._answer_alone(episode)]
        return torch.stack(steps, dim=1)

    def _answer_alone(self, episode: Episode) -> Tensor:
        return self._scratch_posterior(episode._replace(scratch=episode.scratch[:, :0]))[-1]

    def _scratch_posterior(self, episode: Episode) -> list[Tensor]:
        """Posterior of each place and of the answer: counts of walks that agree so far."""
        paths = self._paths(episode.known, episode.query, self.hops)
        possible = torch.ones_like(paths[..., 0], dtype=torch.bool)
        steps: list[Tensor] = []
        for place, token in enumerate(episode.scratch.unbind(1)):
            hop = self.stride * (place + 1)
            writes = hop < episode.hops
            steps.append(self._or_blank(belief(paths[..., hop], possible, self.outcomes), writes))
            told = writes & (token < self.alphabet)
            agree = possible & (paths[..., hop] == token[:, None])
            lost = told & ~agree.any(1)
            possible = torch.where((told & ~lost)[:, None], agree, possible | lost[:, None])
            if bool(lost.any()):
                ahead = self._paths(episode.known[lost], token[lost], self.hops - hop)
                paths[lost, :, hop:] = ahead
        rows = torch.arange(len(paths), device=paths.device)
        return [*steps, belief(paths[rows, :, episode.hops], possible, self.outcomes)]

    def _shuffled_posterior(self, episode: Episode) -> list[Tensor]:
        """Posterior of each place if the scratch follows a permutation that is not shown."""
        count, size = episode.known.shape
        known = torch.full_like(episode.known, -1)
        expected = known.new_full((count, self.outcomes), 1 / size, dtype=torch.float64)
        expected[:, size:] = 0
        steps: list[Tensor] = []
        current: Tensor | None = None
        for place, token in enumerate(episode.scratch.unbind(1)):
            symbol = token.clamp(max=size - 1)  # blanks come last, so nothing follows them
            if current is not None:
                expected = next_symbol(known, current, self.outcomes)
                known = known.scatter(1, current[:, None], symbol[:, None])
            steps.append(self._or_blank(expected, place + 1 < episode.hops))
            current = symbol
        return steps

    def _or_blank(self, expected: Tensor, writes: Tensor) -> Tensor:
        blank = torch.zeros_like(expected)
        blank[:, self.alphabet] = 1
        return torch.where(writes[:, None], expected, blank)

    def _paths(self, known: Tensor, start: Tensor, hops: int) -> Tensor:
        return walk(known, start, hops, orders_of(self.unrevealed, self.hops))
