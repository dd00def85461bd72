"""Random-access binding: store key-value pairs, then ask for some of them.

    (STORE k SEP v) × N,  FILLER × F,  then per query  QUERY k PAD,  with FILLER × ⌊F/2⌋ in between

The posterior is all on the stored value. Predictions are read at the PAD after the asked key, and
answers are never shown. Keys and values of a sequence are distinct; each query asks for a
uniformly random stored key.
"""

import math
from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar, Self

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from bayesattn.checks import at_least
from bayesattn.tunnels.base import Batch, Tunnel, stretched_length
from bayesattn.tunnels.shuffles import random_orders

PAD, STORE, FILLER, QUERY, SEP = range(5)
FIRST_KEY = 10
"""Token of the first key; the tokens between SEP and it are left free, as in the papers."""


@dataclass(frozen=True)
class Recall(Tunnel):
    """Fresh pairs per sequence, asked for by key after a gap."""

    name: ClassVar[str] = "recall"

    pairs: int = 64
    """Number of stored pairs."""
    queries: int = 3
    """Number of keys asked for."""
    filler: int = 32
    """Filler tokens before the first query; half as many between queries."""
    keys: int = 256
    """Number of different keys."""
    values: int = 256
    """Number of different values."""

    def __post_init__(self) -> None:
        for field in ("pairs", "queries"):
            at_least(field, getattr(self, field), 1)
        at_least("filler", self.filler, 0)
        at_least("values", self.values, 2)
        for field in ("keys", "values"):
            if at_least(field, getattr(self, field), 1) < self.pairs:
                raise ValueError(
                    f"{self.pairs} distinct pairs need at least as many {field}, "
                    f"not {getattr(self, field)}"
                )

    @property
    def outcomes(self) -> int:
        """Values."""
        return self.values

    @property
    def vocabulary(self) -> int:
        """Marks, keys and values."""
        return FIRST_KEY + self.keys + self.values

    @property
    def positions(self) -> int:
        """Pairs, filler, queries, filler between them."""
        between = (self.queries - 1) * (self.filler // 2)
        return 4 * self.pairs + self.filler + 3 * self.queries + between

    @property
    def horizon(self) -> int:
        """Queries."""
        return self.queries

    @property
    def scored(self) -> Tensor:
        """The PAD of each query."""
        first = 4 * self.pairs + self.filler + 2
        return first + torch.arange(self.queries) * (3 + self.filler // 2)

    @property
    def hypothesis_bits(self) -> float:
        """log2 of the number of ways to bind N of the keys to distinct values."""
        bindings = math.comb(self.keys, self.pairs) * math.perm(self.values, self.pairs)
        return math.log2(bindings)

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        """Distinct keys and values, written into a template."""
        device, scored = generator.device, self.scored.to(generator.device)
        keys = FIRST_KEY + random_orders(batch_size, self.keys, generator, take=self.pairs)
        values = random_orders(batch_size, self.values, generator, take=self.pairs)
        asked = torch.randint(
            self.pairs, (batch_size, self.queries), generator=generator, device=device
        )
        inputs = _template(self).to(device).repeat(batch_size, 1)
        inputs[:, 1 : 4 * self.pairs : 4] = keys
        inputs[:, 3 : 4 * self.pairs : 4] = self.label_tokens(values)
        inputs[:, scored - 1] = keys.gather(1, asked)
        labels = values.gather(1, asked)
        posterior = one_hot(labels, self.values).double()
        return Batch(inputs, scored, posterior, labels, {"asked": asked})

    def exact(self, inputs: Tensor) -> Tensor:
        """[B, queries, values]: all on the value stored with the key; uniform if it never was."""
        self._check_inputs(inputs)
        store = inputs[:, : 4 * self.pairs]
        values = store[:, 3::4] - (FIRST_KEY + self.keys)
        asked = inputs[:, self.scored.to(inputs.device) - 1]
        match = (asked[..., None] == store[:, None, 1::4]).double()
        posterior = match.new_zeros(len(inputs), self.queries, self.values)
        posterior.scatter_(2, values[:, None].expand(-1, self.queries, -1), match)
        return posterior + (1 - match.sum(-1, keepdim=True)) / self.values

    def stretched(self, factor: float) -> Self:
        """Longer gaps between storing and asking."""
        if self.filler == 0:
            raise ValueError("without filler there is no gap to stretch: choose filler=1 or more")
        return replace(self, filler=stretched_length(self.filler, factor))

    def label_tokens(self, labels: Tensor) -> Tensor:
        """Values have their own tokens."""
        return labels + (FIRST_KEY + self.keys)


@cache
def _template(tunnel: Recall) -> Tensor:
    """[T] a sequence without its keys and values."""
    template = torch.full((tunnel.positions,), FILLER)
    template[: 4 * tunnel.pairs : 4] = STORE
    template[2 : 4 * tunnel.pairs : 4] = SEP
    template[tunnel.scored - 2] = QUERY
    template[tunnel.scored] = PAD
    return template
