"""Markov chains and the observations they emit, many sequences at once.

Works with the sequences in the last dimension: the loops over steps then touch long contiguous
vectors instead of many rows of a few states each.
"""

import torch
from torch import Tensor


def sample_chain(
    first: Tensor, transition: Tensor, length: int, generator: torch.Generator
) -> Tensor:
    """[B, length] states: s_0 = first, P(s_{t+1} = j | s_t = i) = transition[b, i, j].

    One uniform number per step says where every state would go (the inverse of its row's
    cumulative sum); what is left to do in order is one lookup per step.

    Args:
        first: [B] int64.
        transition: [B, states, states], rows sum to 1.
        length: number of states, the first included.
        generator: source of randomness.
    """
    chance = _uniform(length - 1, len(first), generator)
    thresholds = transition.cumsum(-1)[..., :-1].permute(1, 2, 0).contiguous()
    following = (thresholds[:, :, None] <= chance).sum(1)
    states = [first[None]]
    for moves in following.unbind(1):
        states.append(moves.gather(0, states[-1]))
    return torch.cat(states).T.contiguous()


def sample_observations(states: Tensor, emission: Tensor, generator: torch.Generator) -> Tensor:
    """[B, length] symbols: P(o_t = k | s_t = i) = emission[b, i, k]."""
    count, length = states.shape
    thresholds = emission.cumsum(-1)[..., :-1].permute(2, 1, 0).contiguous()
    index = states.T.expand(len(thresholds), -1, -1)
    chance = _uniform(length, count, generator)
    return (thresholds.gather(1, index) <= chance).sum(0).T.contiguous()


def _uniform(length: int, count: int, generator: torch.Generator) -> Tensor:
    return torch.rand(
        length, count, dtype=torch.float64, generator=generator, device=generator.device
    )
