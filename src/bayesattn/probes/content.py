"""Heads that attend by content rather than by position, and the keys that they compare.

    bits     I(sequence ; attended position | step), the mean over sequences of KL(row ‖ mean row of
             the step): 0 for a head that attends to the same positions in every sequence
    lookup   attention on earlier pairs with the requested key, minus that on the pairs with this
             role in other sequences at the same step

Both are measured at the scored positions, the requested keys. A lookup head finds the requested key
at the keys of earlier pairs or at their values. The keys of attention are compared there, one mean
key for each symbol. N sequences, S steps, H heads, T positions.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bayesattn.probes.anatomy import anatomy
from bayesattn.probes.focusing import attention_rows, roles
from bayesattn.probes.keys import token_keys
from bayesattn.probes.measured import NotApplicableError
from bayesattn.tunnels import Batch, Bijection, Tunnel

LOOKS_UP = 0.5
"""A lookup head has at least this share of the largest lookup of any head."""


@dataclass(frozen=True, kw_only=True)
class Lookup:
    """A head that looks keys up."""

    layer: int
    head: int
    mass: float
    """Attention on the right pairs, minus that on the pairs of other sequences."""
    keys: Tensor
    """[symbols, d] mean key of each symbol, where the head finds it."""


def content_bits(rows: Tensor) -> Tensor:
    """[H] bits of attention rows [N, S, H, T] that depend on the sequence."""
    rows = rows.double()
    mean = rows.mean(0, keepdim=True)
    divergence = torch.xlogy(rows, rows) - torch.xlogy(rows, mean)
    return divergence.sum(-1).mean((0, 1)).clamp(min=0) / math.log(2)


def lookup_mass(rows: Tensor, mask: Tensor) -> Tensor:
    """[H] attention of rows [N, S, H, T] in `mask` [N, S, T], minus that in other sequences' masks.

    Only rows with a non-empty mask count; only their masks are exchanged, within a step.
    """
    some = mask.any(-1).double()
    others = some.sum(0)
    counted = some * (others > 1)
    if not bool(counted.any()):
        raise NotApplicableError("no key returns, so there is nothing to look up")
    mask = mask.double()
    foreign = (mask.sum(0) - mask) / (others - 1).clamp(min=1)[:, None]
    beyond = torch.einsum("nsht,nst->nsh", rows.double(), mask - foreign)
    return (beyond * counted[..., None]).sum((0, 1)) / counted.sum()


def find_lookups(model: nn.Module, tunnel: Tunnel, batch: Batch) -> list[Lookup]:
    """The lookup heads of all layers of a model with returning keys."""
    if not isinstance(tunnel, Bijection):
        raise NotApplicableError(f"nothing is looked up by its key in the {tunnel.name} tunnel")
    rows, parts = attention_rows(model, batch), anatomy(model)
    right = roles(tunnel, batch)["consistent"]
    masses = {layer: lookup_mass(own, right) for layer, own in rows.items()}
    most = max(float(mass.max()) for mass in masses.values())
    place = torch.arange(batch.inputs.shape[1]) % 2
    pair_key = batch.metadata["keys"].repeat_interleave(2, 1)[:, : len(place)]
    places = {str(at): torch.where(place == at, pair_key, -1) for at in (0, 1)}
    keys = token_keys(model, batch.inputs, places)
    found: list[Lookup] = []
    for layer, mass in masses.items():
        # where on the right pairs: at their keys (0) or at their values (1)
        inside = torch.stack([lookup_mass(rows[layer], right & (place == at)) for at in (0, 1)])
        for head in range(len(mass)):
            if float(mass[head]) < LOOKS_UP * most:
                continue
            own = keys[str(int(inside[:, head].argmax())), layer]
            group = head * own.shape[1] // parts.attention(layer).heads
            one = {"layer": layer, "head": head, "mass": float(mass[head])}
            found.append(Lookup(**one, keys=own[:, group]))
    return found
