"""Which keys may be left out: those that together hold less of a row than its rounding.

Row i gives key j the share p_ij = exp(s_ij - e_i), where s_ij = c_i q_i·k_j / √d + c'_i t[i-j] and
e_i is the log-evidence of the row. Let ε = eps/8 (2^-26 in float32), a chunk m be some keys in
sequence, κ_m their largest |k_j|, t_max the top of the table and x_im ≤ 0 the largest t - t_max
between row and chunk. By Cauchy-Schwarz, with any e ≤ e_i,

    log Σ_{j in m} p_ij  ≤  ln |m| + c_i |q_i| κ_m / √d + c'_i (t_max + x_im) - e.

Going forward, e is the score of the row's own key; going backward, its evidence, which is known.
A block of rows takes the largest of its bounds. For this the maximum over rows of the terms in κ_m,
a convex function of it, is replaced by its chord between 0 and the largest key.

**What is left out.** Chunks with Σ_m w_m p_im ≤ ε, by three budgets: everything from some distance
on, if the largest key and weight of all keep it below ε/4; then every chunk below ε/4 divided by
their number; then, from the far end on, chunks that sum to ε/2. What remains is a range of keys
that ends at the block, and rarely some chunks apart from it: those with large keys.

**Why the result does not change.** The weights w_m make small shares count that meet something
large. With a = |v_m| / |v| and b = |k_m| / |k|, the largest size in the chunk over the mean size
beside the block,

    w_m = max(1, a) · max(1, b) · (1 + c'|x_im|).

Let E be the shares that are left out, G the gradient of the output O, V and K the sizes beside a
row. Each row of E, times its weights, sums to ε at most. So, up to factors of 2,

    O_i     is off by  Σ_j E_ij |v_j|                     ≤ ε V
    dS_i    is off by  Σ_j E_ij |G_i| |v_j - o_i|         ≤ ε |G_i| V
    dQ_i    is off by  Σ_j |dS_ij| |k_j|                  ≤ ε |G_i| V K
    dc'_i   is off by  Σ_j |dS_ij| |t_max - t[i-j]|       ≤ ε |G_i| V / c'

(dS sums to 0 in each row, so that t_max drops out), while rounding in float32 takes eps/2 of the
terms that are kept. dV, dK and d table gather columns from many rows; all that they miss together
is as small: Σ_j |dV_j| by ε Σ_i |G_i|, and so on. A parameter of the prior reads d table through
∂t/∂θ, which is t (slopes, scales) or t ln r (shapes). The factor 1 + c'|x| covers the first, and
ln r, at most 14 up to a million keys, leaves less than a float32 sum over so many rows loses.

**What is kept.** Heads whose prior nowhere falls by ln 1/ε, heads with a negative factor,
and whatever meets NaN or infinity: comparisons are written such that these keep.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# (torch leaves some members untyped)

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from bayesattn.attention.kernels.strided.sizes import CHUNK, Sizes, measure
from bayesattn.attention.terms import Terms

_APART = 8  # chunks apart that one block may have; with more it takes all keys in between
_PAIRS = 1 << 18  # blocks times chunks that are judged at once, per head
_BLOCKS = 64  # but no more blocks than these, which share what is far from all of them
_UNSEEN = -1e30  # log-prior of distances that nobody sees


class Plan(NamedTuple):
    """What each head needs of a run, by blocks of CHUNK rows."""

    low: Tensor
    """[H, R] the first key of the range that ends at the block."""
    apart: Tensor
    """[n, 4] head, block, first key and end of a chunk that is needed before that range."""
    missed: Tensor
    """[N, H, R] log of a bound on what is left out (ε at most), if `ground` were the evidence."""
    ground: Tensor
    """[N, H, T] a lower bound of the log-evidence where something is left out."""


def plan(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    terms: Terms,
    evidence: Tensor | None = None,
    tolerance: float | None = None,
) -> Plan | None:
    """What a run of queries needs; None if all heads need everything.

    Args:
        q: [N, H, T, D], before their temperature.
        k: [N, G, S, D].
        v: like k.
        terms: of the run, see `Terms.at`.
        evidence: [N, H, T] log-evidence, if it is known.
        tolerance: ε without weights, for an output alone; by default ε of the dtype, with weights.
    """
    table, _, temper, seen, _ = terms[:5]
    assert table is not None
    table = table.detach()[:, : seen.span]
    limit = math.log(epsilon(table.dtype) if tolerance is None else tolerance)
    highest = _highest(table)
    fall = table.amax(1) - highest.amin(1)
    if temper is not None:
        fall = torch.where(temper.amin(1) >= 0, fall * temper.detach().amax(1), 0.0)
    heads = (fall > -limit).nonzero()[:, 0]
    if not len(heads):
        return None
    sizes = measure(q, k, v, terms, heads, evidence)
    judge = _Judge(sizes, _drops(highest[heads], sizes.keys.shape[2]), limit, tolerance is None)
    blocks, chunks = sizes.least.shape[2], sizes.keys.shape[2]
    step = max(1, min(_BLOCKS, _PAIRS // chunks))
    parts = [judge(b, min(b + step, blocks)) for b in range(0, blocks, step)]
    low, apart = torch.cat([p[0] for p in parts], 1), torch.cat([p[1] for p in parts])
    first = apart[:, 2:] * CHUNK - sizes.before
    apart = torch.cat([heads[apart[:, :1]], apart[:, 1:2], first.clamp(min=0), first + CHUNK], 1)
    found = Plan(
        low.new_zeros(len(table), blocks),
        apart,
        table.new_full((len(q), len(table), blocks), -math.inf),
        table.new_zeros(q.shape[:3]),
    )
    found.low[heads] = (low * CHUNK - sizes.before).clamp(min=0)
    found.missed[:, heads] = torch.cat([p[2] for p in parts], 2)
    found.ground[:, heads] = sizes.ground
    return found


def epsilon(dtype: torch.dtype) -> float:
    """Of a row, what it may miss: a quarter of the rounding of its result."""
    return torch.finfo(dtype).eps / 8


def _highest(table: Tensor) -> Tensor:
    """[H, n] the largest log-prior of each CHUNK of distances."""
    rest = -table.shape[1] % CHUNK
    return pad(table, (0, rest), value=_UNSEEN).unflatten(1, (-1, CHUNK)).amax(2)


def _drops(highest: Tensor, chunks: int) -> Tensor:
    """[h, chunks] the largest t - t_max between a chunk and a block so many chunks later."""
    line = pad(highest, (0, max(0, chunks - highest.shape[1])), value=_UNSEEN)[:, :chunks]
    # d chunks later means (d - 1) CHUNK + 1 .. (d + 1) CHUNK - 1 keys
    line = torch.maximum(line, line.roll(1, 1))
    line[:, 0] = highest[:, 0]
    return line - highest.amax(1, keepdim=True)


class _Judge:
    def __init__(self, sizes: Sizes, drops: Tensor, limit: float, weigh: bool) -> None:
        self.sizes, self.drops, self.limit, self.weigh = sizes, drops, limit, weigh
        self.farther = drops.flip(1).cummax(1).values.flip(1)
        """The largest drop from that distance on."""

    def __call__(self, start: int, stop: int) -> tuple[Tensor, Tensor, Tensor]:
        """First chunk, chunks apart and what is missed, of the blocks start .. stop-1."""
        sizes = self.sizes
        chunks = sizes.keys.shape[2]
        depth, beyond = self._depth(start, stop)
        first = max(0, sizes.shift + start - depth)
        block = torch.arange(start, stop) + sizes.shift
        chunk = torch.arange(first, sizes.shift + stop)
        distance = block[:, None] - chunk
        fits = distance > 0

        share = self._shares(start, stop, first, distance.clamp(min=0))
        small = share * (4 * chunks) <= 1
        rest = share.masked_fill(small, 0.0).cumsum(3) <= 0.5
        out = (small | rest) & fits
        missed = (share.masked_fill(~out, 0.0).sum(3) + beyond).log() + self.limit
        needed = (fits & ~out).any(0)  # [h, R, C]
        low = torch.where(fits & ~needed, chunk + 1, first).amax(2)
        apart = needed & (chunk < low[:, :, None])
        if bool(apart.any()):
            many = apart.sum(2) > _APART
            lowest = torch.where(needed, chunk, chunks).amin(2)
            low = torch.where(many, lowest, low)
            apart &= ~many[:, :, None]
        found = apart.nonzero()
        found[:, 1] += start
        found[:, 2] += first
        return low, found, missed

    def _depth(self, start: int, stop: int) -> tuple[int, float]:
        """Chunks before the first block beyond which nothing can matter, and how much it may be."""
        sizes = self.sizes
        level = sizes.most[:, :, start:stop].amax((0, 2))[:, None]
        drop = sizes.factor[:, start:stop].amin(1)[:, None] * self.farther
        bound = level + drop + math.log(CHUNK * sizes.keys.shape[2]) - self.limit
        if self.weigh:
            block = slice(start + sizes.shift, stop + sizes.shift)
            beside = sizes.beside[:, :, block].amin(2)
            gap = sizes.largest.amax(2) - beside
            bound += torch.log1p(-drop) + gap.clamp(min=0).sum(-1).amax(0)[:, None]
        depth = int((~(bound <= -math.log(4))).sum(1).max())
        return depth, 0.25 if sizes.shift + start > depth else 0.0

    def _shares(self, start: int, stop: int, first: int, distance: Tensor) -> Tensor:
        """[N, h, R, C] bound on the share of each chunk, times its weight, relative to ε."""
        sizes = self.sizes
        rows, keys = slice(start, stop), slice(first, first + distance.shape[1])
        least = sizes.least[:, :, rows, None]
        chord = (sizes.most[:, :, rows, None] - least) * sizes.keys[:, :, None, keys]
        drop = sizes.factor[:, rows, None] * self.drops[:, distance]
        bound = least + chord + drop
        if self.weigh:
            bound += torch.log1p(-drop)
            beside = slice(start + sizes.shift, stop + sizes.shift)
            for size in range(2):
                gap = sizes.largest[:, :, None, keys, size]
                bound += (gap - sizes.beside[:, :, beside, None, size]).clamp_(min=0)
        return (bound + (math.log(CHUNK) - self.limit)).clamp_(max=60).exp_()
