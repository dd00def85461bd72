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
    """[B, K, S]: P(s_t | o_0 .. o_{t-1})."""
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
    predicted, filtered, norms = _beliefs(initial, transition, likelihoods)
    return FilteredStates(
        filtered.permute(2, 0, 1).contiguous(),
        predicted[:-1].permute(2, 0, 1).contiguous(),
        norms.log().sum(0),
    )


def predict_next(initial: Tensor, transition: Tensor, likelihoods: Tensor) -> Tensor:
    """[B, K, S]: P(s_{t+1} | o_0 .. o_t).

    What is wanted of one chain is less than the whole filter: the belief before it is divided by
    its sum goes through the transition at once, and its sum comes out of the same product.

    Args:
        initial: [S].
        transition: [S, S].
        likelihoods: [K, S, B], ∝ P(o_t | s_t): sequences last.
    """
    length, states, count = likelihoods.shape
    summing = torch.cat([transition.double().T, torch.ones_like(transition[:1]).double()])
    weighed = likelihoods.new_empty(states, count)
    arrived = likelihoods.new_empty(length, states + 1, count)
    belief = initial.double()[:, None].expand(-1, count)
    for step, out in zip(likelihoods, arrived, strict=True):
        torch.mul(belief, step, out=weighed)
        torch.mm(summing, weighed, out=out)
        belief = out[:-1].div_(out[-1])
    _check_possible(arrived[:, -1])
    return arrived[:, :-1].permute(2, 0, 1).contiguous()


def _beliefs(
    initial: Tensor, transition: Tensor, likelihoods: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Predicted [K+1, S, B], filtered [K, S, B], and the probability of each observation [K, B].

    Sequences come last: each step is a few operations on long contiguous vectors.
    """
    count, length, states = likelihoods.shape
    steps = likelihoods.double().permute(1, 2, 0).contiguous()
    shared = transition.dim() == 2
    moves = transition.double()
    moves = moves.T.contiguous() if shared else moves.permute(1, 2, 0).contiguous()
    arriving = torch.empty_like(moves)
    predicted = steps.new_empty(length + 1, states, count)
    predicted[0] = initial.double().expand(count, -1).T
    filtered = torch.empty_like(steps)
    norms = steps.new_empty(length, count)
    beliefs = predicted.unbind()
    for t, (step, now, norm) in enumerate(zip(steps, filtered, norms, strict=True)):
        torch.mul(beliefs[t], step, out=now)
        torch.sum(now, 0, out=norm)
        now.div_(norm)
        if shared:
            torch.mm(moves, now, out=beliefs[t + 1])
        else:
            torch.mul(now[:, None], moves, out=arriving)
            torch.sum(arriving, 0, out=beliefs[t + 1])
    _check_possible(norms)
    return predicted, filtered, norms


def _check_possible(norms: Tensor) -> None:
    """Raise ValueError if a probability [K, B] of an observation is 0."""
    if not bool((norms > 0).all()):
        step, row = torch.nonzero(~(norms > 0))[0]
        raise ValueError(
            f"observation {int(step)} of sequence {int(row)} has probability 0 in every state"
        )
