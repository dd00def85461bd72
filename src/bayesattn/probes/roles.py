"""Which positions speak for hypotheses that are still possible, and which for others.

    consistent   earlier positions about a hypothesis that the evidence so far leaves standing
    eliminated   earlier positions about one that it does not

bijection, recall: the pairs with the asked key, and all other pairs. Where a key is new nothing is
consistent: every pair seen speaks of values that are taken. hmm, revision: the rows of the header
that belong to hypotheses more probable than at the start, and the other rows.
"""

import torch
from torch import Tensor

from bayesattn.probes.errors import NotApplicableError
from bayesattn.tunnels import HMM, Batch, Bijection, Recall, Revision, Tunnel

Roles = dict[str, Tensor]
"""Masks [N, S, T]: sequences, steps, positions."""


def roles(tunnel: Tunnel, batch: Batch) -> Roles:
    """Masks of consistent and of eliminated positions."""
    match tunnel:
        case Bijection():
            return _bijection(batch)
        case Recall():
            return _recall(tunnel, batch)
        case HMM() | Revision():
            return _header(tunnel, batch)
        case _:
            raise NotApplicableError(f"no position of a {tunnel.name} stands for one hypothesis")


def _bijection(batch: Batch) -> Roles:
    keys = batch.metadata["keys"]
    pair = torch.arange(batch.inputs.shape[1]) // 2
    earlier = pair < torch.arange(keys.shape[1])[:, None]
    same = keys[:, :, None] == keys[:, None, pair]
    return {"consistent": same & earlier, "eliminated": ~same & earlier}


def _recall(tunnel: Recall, batch: Batch) -> Roles:
    pair = torch.arange(tunnel.positions) // 4
    stored = (pair < tunnel.pairs).expand(*batch.labels.shape, -1)
    same = batch.metadata["asked"][..., None] == pair
    return {"consistent": same & stored, "eliminated": ~same & stored}


def _header(tunnel: HMM | Revision, batch: Batch) -> Roles:
    about = torch.full((tunnel.positions,), -1)
    if isinstance(tunnel, Revision):
        about[: tunnel.hypotheses] = torch.arange(tunnel.hypotheses)
    elif tunnel.header == "rows":
        about[: tunnel.prefix] = torch.arange(tunnel.states).repeat(2)
    else:
        states, symbols = torch.arange(tunnel.states), tunnel.symbols
        first = 1 + tunnel.states**2
        about[1:first] = states.repeat_interleave(tunnel.states)
        about[first + 1 : tunnel.prefix - 1] = states.repeat_interleave(symbols)
    likely = batch.posterior > 1 / tunnel.outcomes
    named = about >= 0
    return {
        "consistent": likely[..., about.clamp(min=0)] & named,
        "eliminated": ~likely[..., about.clamp(min=0)] & named,
    }
