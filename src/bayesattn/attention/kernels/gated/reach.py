"""How much of a rectangle each head needs: what is forgotten below rounding is left out.

The keys lo .. j of a rectangle weigh, in row i and relative to the query's own key,

    mass_ij <= (hi - lo) · exp(max_i(|q_i| · scale · max_j |k_j| - own_i) + temper · (c_i - c_j))

by Cauchy-Schwarz, where own_i is the score of the query's own key, which no gate forgot. Since c
falls, the keys that matter are the last ones, and the rows to which any of them matters the first
ones. Heads that remember little are computed apart from those that remember much.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# (torch leaves some members untyped)

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from bayesattn.attention.kernels.gated.parts import Part, block_rows
from bayesattn.attention.kernels.gated.piece import Piece
from bayesattn.attention.kernels.strided.backward import tile_shape
from bayesattn.attention.kernels.strided.heads import CHUNK, Heads, Keys, cheapest, places
from bayesattn.attention.kernels.strided.sizes import blocks

_WORTH = 256
"""Rows of a rectangle for which it is worth asking."""
_GAIN = 0.8
"""Cost of two groups of heads, relative to that of all together, from which on they are apart."""


class Share(NamedTuple):
    """What some heads need of a rectangle."""

    heads: Heads
    part: Part

    def take(self, x: Tensor, place: slice) -> Tensor:
        """Of tensors [N, H, T or S, ...]: a view, or a copy if the heads are not neighbours."""
        return x[:, :, place][:, self.heads]

    def put(self, x: Tensor, place: slice, some: Tensor) -> None:
        """Write what was taken."""
        x[:, :, place][:, self.heads] = some


def groups(piece: Piece, skip: bool) -> Iterator[tuple[Heads, int, Keys]]:
    """Heads that are differentiated together, rows of their blocks, and the keys they need."""
    seen, decay, terms = piece.terms.seen, piece.decay, piece.terms
    most = tile_shape(seen.end, piece.q.shape[1])[0]
    if decay is None:
        yield slice(None), most, Keys(seen)
        return
    rows = block_rows(decay, terms.temper, seen.offset, most)
    low = Reach(piece, skip).low()
    starts = torch.arange(seen.offset, seen.end, CHUNK)
    reach: list[float] = (starts - low).double().mean(1).tolist()
    for count in sorted(set(rows)):
        heads = [h for h, own in enumerate(rows) if own == count]
        for some in cheapest(sorted(heads, key=lambda h: reach[h]), reach):
            farthest = max(reach[h] for h in some)
            keys = Keys(seen, low[some].amin(0).tolist(), reach=farthest)
            yield places(sorted(some)), count, keys


class Reach:
    """Sizes of queries and keys, measured when first asked for."""

    def __init__(self, piece: Piece, skip: bool) -> None:
        self.piece, self.skip = piece, skip
        self._sizes: tuple[Tensor, Tensor, Tensor] | None = None

    def shares(self, part: Part) -> list[Share]:
        """What has to be computed of a part."""
        if not self.skip or part.causal or part.origin is None or part.b - part.a < _WORTH:
            return [Share(slice(None), part)]
        rows, keys = (need.amax(0).tolist() for need in self._needs(part, part.origin))
        return [
            Share(
                _all_or(heads, len(rows)),
                part._replace(
                    b=part.a + max(rows[h] for h in heads),
                    lo=part.hi - max(keys[h] for h in heads),
                ),
            )
            for heads in _groups(rows, keys)
        ]

    def low(self) -> Tensor:
        """[H, blocks] the first key that each block of CHUNK rows needs, of those with gates."""
        decay, terms = self.piece.decay, self.piece.terms
        assert decay is not None
        starts = torch.arange(terms.seen.offset, terms.seen.end, CHUNK)
        if not self.skip:
            return starts.new_zeros(decay.shape[1], len(starts))
        length, own, size = self._measured()
        lead = blocks(length * size.amax(-1, keepdim=True) - own, -torch.inf).amax(-1).double()
        rounding = math.log(torch.finfo(self.piece.q.dtype).eps / 16)
        drop = lead + math.log(terms.seen.end) - rounding
        if terms.temper is not None:
            least = blocks(terms.temper, torch.inf).amin(-1)
            drop = torch.where(least > 0, drop / least, torch.inf)
        drop = torch.where(drop.isnan(), torch.inf, drop)
        needed = torch.searchsorted(-decay.contiguous(), -(decay[..., starts] + drop).contiguous())
        return torch.minimum(needed.amin(0), starts)

    def _needs(self, part: Part, origin: int) -> tuple[Tensor, Tensor]:
        """[N, H] rows and keys that are needed, the first and the last ones."""
        decay, terms = self.piece.decay, self.piece.terms
        assert decay is not None
        if self._sizes is None:
            self._sizes = self._measured()
        length, own, size = self._sizes
        rows = slice(part.a - terms.seen.offset, part.b - terms.seen.offset)
        largest = size[..., part.lo : part.hi].amax(-1, keepdim=True)
        lead = (length[..., rows] * largest - own[..., rows]).amax(-1).double()
        rounding = math.log(torch.finfo(self.piece.q.dtype).eps / 16)
        drop = lead + math.log(part.hi - part.lo) - rounding
        if terms.temper is not None:
            least = terms.temper[:, rows].amin(-1)
            drop = torch.where(least > 0, drop / least, torch.inf)
        drop = drop[..., None]
        near = decay[..., part.lo : part.hi] - decay[..., origin, None] <= drop
        soon = decay[..., part.hi - 1, None] - decay[..., part.a : part.b] <= drop
        return soon.sum(-1), near.sum(-1)

    def _measured(self) -> tuple[Tensor, Tensor, Tensor]:
        """Norms of queries times scale, scores of their own keys, norms of keys."""
        q, k, scale = self.piece.q, self.piece.k, self.piece.terms.scale
        own = (q * k[:, :, self.piece.terms.seen.offset :]).sum(-1) * scale
        return q.norm(dim=-1) * abs(scale), own, k.norm(dim=-1)


def _groups(rows: list[int], keys: list[int]) -> list[list[int]]:
    """Heads that need anything, in one group or in the two that cost least."""
    cost = [r * n for r, n in zip(rows, keys, strict=True)]
    heads = sorted((h for h in range(len(cost)) if cost[h]), key=lambda h: cost[h])

    def price(some: list[int]) -> int:
        return len(some) * max(rows[h] for h in some) * max(keys[h] for h in some)

    best = min(
        ([heads[:at], heads[at:]] for at in range(1, len(heads))),
        key=lambda pair: price(pair[0]) + price(pair[1]),
        default=None,
    )
    if best is None or price(best[0]) + price(best[1]) > _GAIN * price(heads):
        return [heads] if heads else []
    return best


def _all_or(heads: list[int], count: int) -> Heads:
    return slice(None) if len(heads) == count else places(sorted(heads))
