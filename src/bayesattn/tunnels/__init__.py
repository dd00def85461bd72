"""Tunnels: tasks with the exact posterior at every scored position."""

import dataclasses
from typing import Any

from bayesattn.checks import registered
from bayesattn.tunnels.base import Batch, LeakError, Tunnel
from bayesattn.tunnels.bijection import Bijection
from bayesattn.tunnels.conjugate import Dice, Labels, Markov
from bayesattn.tunnels.groups import GroupFilter
from bayesattn.tunnels.hmm import HMM
from bayesattn.tunnels.hops import Hops
from bayesattn.tunnels.processes import RRXOR, Mess3, Process
from bayesattn.tunnels.recall import Recall
from bayesattn.tunnels.revision import Revision
from bayesattn.tunnels.sticky import StickyChain

__all__ = [
    "HMM",
    "RRXOR",
    "TUNNELS",
    "Batch",
    "Bijection",
    "Dice",
    "GroupFilter",
    "Hops",
    "Labels",
    "LeakError",
    "Markov",
    "Mess3",
    "Process",
    "Recall",
    "Revision",
    "StickyChain",
    "Tunnel",
    "make_tunnel",
]

TUNNELS: dict[str, type[Tunnel]] = {
    tunnel.name: tunnel
    for tunnel in (
        *(Bijection, HMM, Recall, Revision, StickyChain, Hops, GroupFilter),
        *(Mess3, RRXOR),
        *(Dice, Markov, Labels),
    )
}


def make_tunnel(name: str, **fields: Any) -> Tunnel:
    """The tunnel called `name`, one of `TUNNELS`, with its own fields.

    >>> make_tunnel("bijection", alphabet=8)
    Bijection(alphabet=8, length=7, replacement=False)
    """
    kind = registered("tunnel", name, TUNNELS)
    allowed = [field.name for field in dataclasses.fields(kind)]
    for field in fields:
        if field not in allowed:
            raise ValueError(
                f"the {name} tunnel has no field {field!r}; its fields are: {', '.join(allowed)}"
            )
    return kind(**fields).require_room()
