"""Far keys: the log-prior of a whole block of queries from a few of its rows.

Seen from far away a block of queries is almost one query, and a prior is a smooth function of its
rows. Lagrange's polynomials L_m on a few rows i_m, which lie like Chebyshev's points, give

    c_i t[i-j] = Σ_m c_i L_m(i) · t[i_m - j],

a product of small rank. It rides along in that of queries and keys as NODES more columns, so that a
prior that SSMax scales row by row need not be written out. At three times half the block's length
the error of a power of the distance falls by a factor of six with each row.

Whether a table is smooth is not taken on trust: rows in between are compared with it, all keys of
them, and where any differs by more than rounding the bias is written out after all.
"""

import math
from functools import cache
from itertools import pairwise

import torch
from torch import Tensor

from bayesattn.attention.kernels.strided.band import Band, split_first

NODES = 8
DISTANCE = 3
"""Far is this many times half the length of a block, from its middle."""
TOLERANCE = 2.0**-18
"""Of max(1, |t|): what a table in float32 is off by itself, where it is steep."""


@cache
def nodes(rows: int) -> list[int]:
    """Rows of a block on which it is interpolated, near Chebyshev's points."""
    angles = (math.pi * (2 * m + 1) / (2 * NODES) for m in range(NODES))
    return [round((rows - 1) * (1 - math.cos(angle)) / 2) for angle in angles]


@cache
def between(rows: int) -> list[int]:
    """Rows to compare, halfway between nodes but for a shift: no period hides from all of them."""
    gaps = pairwise(nodes(rows))
    return [(low + high) // 2 + m % 3 for m, (low, high) in enumerate(gaps)]


@cache
def weights(rows: int) -> Tensor:
    """[rows, NODES] the polynomials, 1 on their own node and 0 on the others."""
    at = torch.tensor(nodes(rows), dtype=torch.float64)
    row = torch.arange(rows, dtype=torch.float64)
    gaps = at[:, None] - at
    gaps.fill_diagonal_(1.0)
    steps = row[:, None, None] - at  # [rows, 1, NODES]
    others = steps.expand(-1, NODES, -1).clone()
    others[:, torch.arange(NODES), torch.arange(NODES)] = 1.0
    return others.prod(-1) / gaps.prod(-1)


def far_keys(band: Band, a: int, b: int) -> tuple[int, int]:
    """Keys lo .. hi-1 that are far from queries a .. b-1, that all of them see, none exempt."""
    half = (b - a) / 2
    return max(band.exempt, b - band.span, 0), math.floor((a + b - 1) / 2 - DISTANCE * half)


def smooth(band: Band, rows: int) -> bool:
    """Whether a few rows give all rows of any block of so many queries, wherever they are far.

    What a block is off by depends on distances only, so the last block, which has them all, tells.
    """
    a, b = band.end - rows, band.end
    lo, hi = max(0, b - band.span), far_keys(band, a, b)[1]
    line = band.reversed[:, band.columns(a, b, lo, hi).start :]
    found = torch.stack([line[:, p : p + hi - lo] for p in nodes(rows)], dim=-1)
    mixed = found @ weights(rows)[between(rows)].T.to(found.dtype)
    exact = torch.stack([line[:, p : p + hi - lo] for p in between(rows)], dim=-1)
    return bool(((mixed - exact).abs() <= TOLERANCE * exact.abs().clamp(min=1.0)).all())


class FarKeys:
    """Keys and values with room for the rows of the prior."""

    def __init__(self, k: Tensor, v: Tensor, band: Band, lead: tuple[int, int]) -> None:
        """Keys and values [N, H, S, D]; `lead` is how the heads of the band spread over N, H."""
        self.band, self.lead, self.width = band, lead, k.shape[3]
        room = (*k.shape[:3], self.width + NODES)
        self.k, self.v = k.new_empty(room), v.new_zeros(room)
        self.k[..., : self.width] = k
        self.v[..., : self.width] = v

    def queries(self, q: Tensor, temper: Tensor, scale: float) -> Tensor:
        """Queries [N, H, rows, D] with their share of the prior, factors `temper` [H, rows]."""
        polynomials = (weights(q.shape[2]) / scale).to(temper.dtype)
        share = split_first(temper, self.lead)[..., None] * polynomials
        return torch.cat([q, share.expand(*q.shape[:2], -1, -1)], -1)

    def keys(self, a: int, b: int, lo: int, hi: int) -> tuple[Tensor, Tensor]:
        """Keys lo .. hi-1 with the prior of some of the queries b-1 .. a, and their values."""
        k, v = self.k[:, :, lo:hi], self.v[:, :, lo:hi]
        start = self.band.columns(a, b, lo, hi).start
        for m, p in enumerate(nodes(b - a)):
            row = self.band.reversed[:, start + p : start + p + hi - lo]
            k[..., self.width + m] = split_first(row, self.lead)
        return k, v
