"""Hypothesis elimination: learn a fresh permutation from key-value pairs.

    P(value | pairs so far, key) = 1 / (V - d) on values not yet seen   if the key is new,
                                   1 on its known value                 if the key is known,

where d is the number of distinct keys so far. Keys and values have separate tokens (keys 0..V-1,
values V..2V-1). Predictions are read at the keys, before the answer is shown:

    position   0   1     2   3     4  …  2L-2
    input      k₁  v₁+V  k₂  v₂+V  k₃ …  k_L

Loss at the value positions would only teach copying.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from bayesattn.checks import fields_at_least
from bayesattn.tunnels.base import Batch, Shape, Tunnel
from bayesattn.tunnels.sampling import integers, random_orders


@dataclass(frozen=True)
class Bijection(Tunnel, name="bijection"):
    """A uniformly random permutation of `alphabet` symbols, shown pair by pair.

    Args:
        alphabet: Number of keys, and of values.
        length: Number of pairs; by default one less than the alphabet.
        replacement: Draw keys independently, so known keys return. If False, each key is shown at
            most once.
    """

    alphabet: int = 20
    length: int | None = None
    replacement: bool = False

    def __post_init__(self) -> None:
        fields_at_least(self, alphabet=2)
        if self.length is None:
            object.__setattr__(self, "length", self.alphabet - 1)
        fields_at_least(self, length=1)
        if self.horizon > self.alphabet and not self.replacement:
            raise ValueError(
                f"length {self.length} needs more keys than the alphabet of {self.alphabet} has: "
                f"choose a length of at most {self.alphabet}, or replacement=True"
            )

    @property
    def shape(self) -> Shape:
        assert self.length is not None
        positions = 2 * self.length - 1  # the last answer is not shown
        scored = range(0, positions, 2)
        return Shape(self.alphabet, positions, scored, vocabulary=2 * self.alphabet)

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        size, length = self.alphabet, self.horizon
        permutation = random_orders(batch_size, size, generator)
        if self.replacement:
            keys = integers(size, (batch_size, length), generator)
        else:
            keys = random_orders(batch_size, size, generator, take=length)
        values = permutation.gather(1, keys)
        inputs = torch.stack([keys, values + size], dim=2).flatten(1)[:, :-1].contiguous()
        posterior, seen = self._posterior(keys, values)
        metadata = {"permutation": permutation, "keys": keys, "seen": seen}
        return Batch(inputs, self.scored.to(generator.device), posterior, values, metadata)

    def exact(self, inputs: Tensor) -> Tensor:
        self._check_inputs(inputs)
        values = pad(inputs[:, 1::2] - self.alphabet, (0, 1))
        return self._posterior(inputs[:, ::2], values)[0]

    def label_tokens(self, labels: Tensor) -> Tensor:
        return labels + self.alphabet

    def _posterior(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Posterior [B, S, V], and whether the key was seen before [B, S].

        The last value is not used. A value is excluded at step t if it first came before t.
        """
        count, length = keys.shape
        steps = torch.arange(length, device=keys.device)
        when = steps.expand_as(keys)
        never = keys.new_full((count, self.alphabet), length)
        first_key = never.scatter_reduce(1, keys, when, "amin").gather(1, keys)
        first_value = never.scatter_reduce(1, values[:, :-1], when[:, :-1], "amin")
        seen = first_key < steps
        new = (~seen).double()
        # Inputs that are no bijection may use up the values: keep the count positive.
        unseen = (self.alphabet - new.cumsum(1) + new).clamp(min=1)
        possible = first_value[:, None] >= steps[:, None]
        posterior = possible * (new / unseen)[..., None]
        known = values.gather(1, first_key)[..., None]
        posterior.scatter_add_(2, known, seen.double()[..., None])
        return posterior, seen
