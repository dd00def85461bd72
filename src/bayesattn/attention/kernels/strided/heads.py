"""Heads that look alike are computed together: uniform ones, and others by how far they look."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# (torch leaves some members untyped)

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from bayesattn.attention.kernels.strided.plan import Plan
from bayesattn.attention.kernels.strided.sizes import CHUNK
from bayesattn.attention.terms import Terms
from bayesattn.attention.visibility import Visibility

Range = tuple[int, int]
Heads = slice | Tensor
_LOOP = 300  # keys more for one head cost as much as another loop over blocks


@dataclass(frozen=True)
class Keys:
    """The keys that some heads need of a run: by default all that are visible."""

    seen: Visibility
    low: Sequence[int] | None = None
    """First key of the range that ends at a block of CHUNK rows, by block."""
    apart: dict[int, list[Range]] = field(default_factory=dict[int, list[Range]])
    """Ranges before it, by block."""
    reach: float = float("inf")
    """How many keys before its own a block needs, on average."""

    def ranges(self, a: int, b: int) -> list[Range]:
        """Ranges of keys that the queries a .. b-1 need, in order; the last one ends at b."""
        visible = max(0, a - self.seen.span + 1)
        if self.low is None:
            return [(visible, b)]
        first, last = a - self.seen.offset, b - 1 - self.seen.offset
        blocks = range(first // CHUNK, last // CHUNK + 1)
        low = max(visible, min(self.low[block] for block in blocks))
        apart = [r for block in blocks for r in self.apart.get(block, ())]
        merged: list[Range] = []
        for start, stop in sorted([(0, self.seen.exempt), *apart, (low, b)]):
            start, stop = max(start, visible), min(stop, b)
            if merged and start <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(stop, merged[-1][1])
            elif start < stop:
                merged.append((start, stop))
        return merged


class Share(NamedTuple):
    """Heads that are computed together."""

    heads: Heads
    keys: Keys
    flat: bool
    """Their log-prior is the same at all distances."""


def shares(terms: Terms, found: Plan | None) -> list[Share]:
    """All heads of a run, in groups; without a plan two at most."""
    assert terms.table is not None
    seen, table = terms.seen, terms.table.detach()[:, : terms.seen.span]
    flat = (table.amax(1) == table.amin(1)) & ((table[:, 0] == 0) | (seen.exempt == 0))
    level = (flat & (seen.span == seen.end)).tolist()
    alike = [h for h, same in enumerate(level) if same]
    rest = [h for h, same in enumerate(level) if not same]
    groups = [Share(places(alike), Keys(seen), flat=True)] if alike else []
    if found is None or not rest:
        return [*groups, Share(places(rest), Keys(seen), flat=False)] if rest else groups
    first = torch.arange(seen.offset, seen.end, CHUNK)
    low = torch.maximum(found.low, first + 1 - seen.span)
    reach: list[float] = (first - low).double().mean(1).tolist()
    for heads in cheapest(sorted(rest, key=lambda h: reach[h]), reach):
        keys = Keys(seen)
        if bool((found.low[heads] > 0).any()):
            farthest = max(reach[h] for h in heads)
            keys = Keys(seen, low[heads].amin(0).tolist(), _apart(found, heads), farthest)
        groups.append(Share(places(sorted(heads)), keys, flat=False))
    return groups


def cheapest(heads: list[int], reach: list[float]) -> list[list[int]]:
    """Heads, nearest first, cut into groups: each costs a loop and the farthest reach per head."""
    best: list[tuple[float, int]] = [(0.0, 0)]
    for stop in range(1, len(heads) + 1):
        far = reach[heads[stop - 1]]
        best.append(min((best[s][0] + _LOOP + (stop - s) * far, s) for s in range(stop)))
    groups: list[list[int]] = []
    stop = len(heads)
    while stop:
        start = best[stop][1]
        groups.append(heads[start:stop])
        stop = start
    return groups


def _apart(found: Plan, heads: list[int]) -> dict[int, list[Range]]:
    """Ranges before the near one, by block."""
    ranges: dict[int, list[Range]] = {}
    for head, block, start, stop in found.apart.tolist():
        if head in heads:
            ranges.setdefault(block, []).append((start, stop))
    return ranges


def places(heads: list[int]) -> Heads:
    """As a slice if they are next to each other."""
    if heads[-1] - heads[0] == len(heads) - 1:
        return slice(heads[0], heads[-1] + 1)
    return torch.tensor(heads)
