"""The exact filter of a hidden Markov model: belief about the state, step by step.

    predicted_t(j) = Σ_i filtered_{t-1}(i) · T[i, j]        (predicted_0 = initial)
    filtered_t(j) ∝ predicted_t(j) · P(o_t | s_t = j)

Row convention T[i, j] = P(j | i); the first observation belongs to the first state, so no
transition comes before it. Float64 and rescaled at every step: no length underflows.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class FilteredStates(NamedTuple):
    """Beliefs of B sequences over K steps about S states."""

    filtered: Tensor
    """[B, K, S]: P(s_t | o_0 .. o_t)."""
    predicted: Tensor
    """[B, K + 1, S]: P(s_t | o_0 .. o_{t-1}); the last one is of the state after all of them."""
    log_likelihood: Tensor
    """[B]: log P(o_0 .. o_{K-1}), in nats."""


def filter_states(
    initial: Tensor, transition: Tensor, emission: Tensor, observations: Tensor
) -> FilteredStates:
    """Filter of discrete observations.

    Args:
        initial: [S] or [B, S].
        transition: [S, S] or [B, S, S].
        emission: [S, O] or [B, S, O].
        observations: [B, K] int64 in 0 .. O-1.
    """
    count, states = len(observations), emission.shape[-2]
    emission = emission.double().expand(count, -1, -1)
    index = observations[:, None].expand(-1, states, -1)
    return filter_likelihoods(initial, transition, emission.gather(2, index).transpose(1, 2))


def filter_likelihoods(initial: Tensor, transition: Tensor, likelihoods: Tensor) -> FilteredStates:
    """Filter of any observations, given likelihoods[b, t, j] ∝ P(o_t | s_t = j) [B, K, S].

    A factor common to all states of a step changes `log_likelihood` only.
    """
    # Sequences come last: each step is a few operations on long contiguous vectors.
    steps = likelihoods.double().permute(1, 2, 0).contiguous()
    shared = transition.dim() == 2
    moves = transition.double()
    moves = moves.T if shared else moves.permute(1, 2, 0).contiguous()
    predicted = [initial.double().expand(len(likelihoods), -1).T]
    filtered: list[Tensor] = []
    chances: list[Tensor] = []
    for step in steps:
        weighed = predicted[-1] * step
        chances.append(weighed.sum(0))
        belief = weighed / chances[-1]
        filtered.append(belief)
        predicted.append(moves @ belief if shared else (belief[:, None] * moves).sum(0))
    chance = torch.stack(chances)
    _check_possible(chance)
    return FilteredStates(_rows_first(filtered), _rows_first(predicted), chance.log().sum(0))


def _rows_first(beliefs: list[Tensor]) -> Tensor:
    """[B, K, S] from K of [S, B]."""
    return torch.stack(beliefs).permute(2, 0, 1).contiguous()


def _check_possible(chance: Tensor) -> None:
    """Raise ValueError if a probability [K, B] of an observation is 0."""
    if not bool((chance > 0).all()):
        step, row = torch.nonzero(~(chance > 0))[0]
        raise ValueError(
            f"observation {int(step)} of sequence {int(row)} has probability 0 in every state"
        )
