"""The exact filter of a hidden Markov model: belief about the state, step by step.

    predicted_t(j) = Σ_i filtered_{t-1}(i) · T[i, j]        (predicted_0 = initial)
    filtered_t(j) ∝ predicted_t(j) · P(o_t | s_t = j)

Row convention T[i, j] = P(j | i). The first observation belongs to the first state, so no
transition comes before it. Float64, rescaled at every step, so long sequences do not underflow.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class FilteredStates(NamedTuple):
    """Beliefs of B sequences over K steps about S states."""

    filtered: Tensor
    """[B, K, S]: P(s_t | o_0 .. o_t)."""
    predicted: Tensor
    """[B, K + 1, S]: P(s_t | o_0 .. o_{t-1}); the last one is after all observations."""


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
    index = observations[:, None].expand(-1, states, -1)
    likelihoods = emission.double().expand(count, -1, -1).gather(2, index).transpose(1, 2)
    return filter_likelihoods(initial, transition, likelihoods)


def filter_likelihoods(initial: Tensor, transition: Tensor, likelihoods: Tensor) -> FilteredStates:
    """Filter of any observations, given likelihoods[b, t, j] ∝ P(o_t | s_t = j) [B, K, S].

    A factor that all states of a step share cancels.
    """
    moves = transition.double()
    predicted = [initial.double().expand(len(likelihoods), -1)]
    filtered: list[Tensor] = []
    chances: list[Tensor] = []
    for step in likelihoods.double().unbind(1):
        joint = predicted[-1] * step
        chances.append(joint.sum(-1, keepdim=True))
        filtered.append(joint / chances[-1])
        predicted.append((filtered[-1][:, None] @ moves)[:, 0])
    chance = torch.cat(chances, dim=1)
    if not bool((chance > 0).all()):
        row, at = torch.nonzero(~(chance > 0))[0]
        raise ValueError(
            f"observation {int(at)} of sequence {int(row)} has probability 0 in every state"
        )
    return FilteredStates(torch.stack(filtered, dim=1), torch.stack(predicted, dim=1))


def filter_words(initial: Tensor, matrices: Tensor, tokens: Tensor) -> Tensor:
    """[B, K, S] beliefs about the state after each of tokens [B, K].

    matrices[x, i, j] = P(token x, next state j | state i). After a token of probability 0 the
    belief is NaN.
    """
    matrices = matrices.double().to(tokens.device)
    belief = initial.double().to(tokens.device).expand(len(tokens), -1)
    beliefs: list[Tensor] = []
    for said in tokens.unbind(1):
        joint = (belief[:, None] @ matrices[said])[:, 0]
        belief = joint / joint.sum(-1, keepdim=True)
        beliefs.append(belief)
    return torch.stack(beliefs, dim=1)
