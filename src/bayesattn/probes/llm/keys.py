"""How orthogonal are keys? Three things are called so; each is measured under its own name.

    weights   mean |cos| between the d_k columns of one head's W_K, vectors of the model's width:
              the authors' definition
    tokens    mean |cos| between the keys of different tokens in one head, vectors of the head's
              width, before rotation and as attention receives them
    heads     mean |cos| between the keys of different heads at the last token of a prompt

Random directions in D dimensions have Γ(D/2) / (√π Γ((D+1)/2)); D is the model's width for
weights and the head's for the other two. Below that is more orthogonal than chance.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bayesattn.probes.keys import cosines, jackknife, pair_cosine
from bayesattn.probes.measured import Measured, mean_over_sequences, plain
from bayesattn.probes.nulls import random_cosine

TOKENS = 100
"""Different tokens whose keys are compared."""
RANDOM = "random directions"


@dataclass(frozen=True, kw_only=True)
class KeyLayer:
    """Keys of one layer; None is what could not be measured."""

    layer: int
    weights: Measured | None = None
    weights_by_head: list[float] | None = None
    tokens: Measured | None = None
    """Before rotation."""
    turned_tokens: Measured | None = None
    """As attention receives them."""
    heads: Measured | None = None
    """None also if there is one head only."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return plain(self)


def weight_cosines(weight: Tensor) -> Tensor:
    """[G] mean |cos| of the columns of each head, from W_K as [G, d_k, width]."""
    return pair_cosine(weight.double())


def measure_weights(found: Tensor, width: int, control: Tensor | None) -> Measured:
    """Of `weight_cosines` [G] of one layer."""
    measured = Measured(value=float(found.mean()), nulls={RANDOM: random_cosine(width)})
    return measured if control is None else measured.beside(random_init=float(control.mean()))


def measure_tokens(keys: Tensor, control: Tensor | None = None) -> Measured:
    """Of keys [n, G, d] of n different tokens: mean over heads, interval over tokens."""
    pairs = _token_cosines(keys)
    count = len(pairs)
    measured = Measured(
        value=float(pairs.sum() / (count * (count - 1))),
        interval=jackknife(pairs),
        nulls={RANDOM: random_cosine(keys.shape[-1])},
    )
    if control is None:
        return measured
    fresh = _token_cosines(control)
    return measured.beside(random_init=float(fresh.sum() / (len(fresh) * (len(fresh) - 1))))


def measure_heads(keys: Tensor, control: Tensor | None = None) -> Measured | None:
    """Of keys [N, G, d] at the last token of prompts, head against head of the same prompt."""
    if keys.shape[1] < 2:
        return None
    measured = mean_over_sequences(pair_cosine(keys.double())[:, None]).beside(
        **{RANDOM: random_cosine(keys.shape[-1])}
    )
    if control is None:
        return measured
    return measured.beside(random_init=float(pair_cosine(control.double()).mean()))


def different_tokens(tokens: Tensor, positions: Tensor, count: int = TOKENS) -> list[int]:
    """Places of the first occurrences of up to `count` different tokens among [M].

    Position 0 is left out: it is where models put attention that has nowhere else to go.
    """
    first: dict[int, int] = {}
    pairs: Sequence[tuple[int, int]] = list(zip(tokens.tolist(), positions.tolist(), strict=True))
    for place, (token, position) in enumerate(pairs):
        if position > 0:
            first.setdefault(token, place)
    return list(first.values())[:count]


def _token_cosines(keys: Tensor) -> Tensor:
    """[n, n] |cos| of keys [n, G, d], mean over heads, 0 on the diagonal."""
    return torch.stack([cosines(head) for head in keys.double().unbind(1)]).mean(0)
