"""Random-access binding: store key-value pairs, then query some of them.

    (STORE k SEP v) × N,  FILLER × F,  then per query  QUERY k PAD,  with FILLER × ⌊F/2⌋ in between

The posterior is 1 on the stored value. Predictions are read at the PAD after the query key, and
answers are never shown. Keys and values of a sequence are distinct; each query key is a
uniformly random stored key.
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from bayesattn.checks import fields_at_least
from bayesattn.tunnels.base import Batch, Shape, Tunnel
from bayesattn.tunnels.sampling import integers, random_orders

PAD, STORE, FILLER, QUERY, SEP = range(5)
FIRST_KEY = 10
"""Token of the first key; the tokens between SEP and this one are unused, as in the papers."""


@dataclass(frozen=True)
class Recall(Tunnel, name="recall", stretches="filler"):
    """Fresh pairs per sequence, queried by key after a gap.

    Args:
        pairs: Number of stored pairs.
        queries: Number of queries.
        filler: Filler tokens before the first query; half as many between queries.
        keys: Number of different keys.
        values: Number of different values.
    """

    pairs: int = 64
    queries: int = 3
    filler: int = 32
    keys: int = 256
    values: int = 256

    def __post_init__(self) -> None:
        fields_at_least(self, pairs=1, queries=1, filler=0, keys=1, values=2)
        for field in ("keys", "values"):
            if getattr(self, field) < self.pairs:
                raise ValueError(
                    f"{self.pairs} distinct pairs need at least as many {field}, "
                    f"not {getattr(self, field)}"
                )

    @property
    def shape(self) -> Shape:
        first, apart = 4 * self.pairs + self.filler + 2, 3 + self.filler // 2
        scored = range(first, first + self.queries * apart, apart)
        vocabulary = FIRST_KEY + self.keys + self.values
        return Shape(self.values, scored[-1] + 1, scored, vocabulary=vocabulary)

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        scored, stored = self.scored.to(generator.device), 4 * self.pairs
        keys = FIRST_KEY + random_orders(batch_size, self.keys, generator, take=self.pairs)
        values = random_orders(batch_size, self.values, generator, take=self.pairs)
        asked = integers(self.pairs, (batch_size, self.queries), generator)
        inputs = torch.full((batch_size, self.positions), FILLER, device=generator.device)
        inputs[:, 0:stored:4] = STORE
        inputs[:, 1:stored:4] = keys
        inputs[:, 2:stored:4] = SEP
        inputs[:, 3:stored:4] = self.label_tokens(values)
        inputs[:, scored - 2] = QUERY
        inputs[:, scored - 1] = keys.gather(1, asked)
        inputs[:, scored] = PAD
        return self._batch(inputs, values.gather(1, asked), asked=asked)

    def exact(self, inputs: Tensor) -> Tensor:
        """[B, queries, values]: 1 on the value stored with the key; uniform for unknown keys."""
        self._check_inputs(inputs)
        store = inputs[:, : 4 * self.pairs]
        values = store[:, 3::4] - (FIRST_KEY + self.keys)
        asked = inputs[:, self.scored.to(inputs.device) - 1]
        match = (asked[..., None] == store[:, None, 1::4]).double()
        posterior = match.new_zeros(len(inputs), self.queries, self.values)
        posterior.scatter_(2, values[:, None].expand(-1, self.queries, -1), match)
        return posterior + (1 - match.sum(-1, keepdim=True)) / self.values

    def stretched(self, factor: float) -> Self:
        """Longer gaps between pairs and queries."""
        if self.filler == 0:
            raise ValueError("without filler there is no gap to stretch: choose filler=1 or more")
        return super().stretched(factor)

    def label_tokens(self, labels: Tensor) -> Tensor:
        return labels + (FIRST_KEY + self.keys)
