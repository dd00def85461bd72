"""Backward pass of the strided kernel: recompute the posterior tile by tile, never all of it.

With P = exp(score - evidence) and G the gradient of the output:

    dV = Pᵀ G        dS = P ∘ (G Vᵀ - rowsum(G ∘ O))        dQ = dS K        dK = dSᵀ Q
    d table[r] = Σ_i c_i dS[i, i-r]        d c_i = Σ_j dS[i, j] t[i-j]      (c = 1 without SSMax)

Four things make it fast in plain torch. The row terms (evidence, rowsum) ride along in the matrix
products as one more column. Keys, values and their gradients are kept transposed, and no product is
added to a part of a tensor, which torch does matrix by matrix. The exponential is base 2: torch's
exp2 is vectorised where exp goes through a library call that is tens of times slower on scores that
underflow, as local priors make them; what is left of these is dropped before it is multiplied. And
dS is written straight into a skewed buffer (see `band`) in which diagonals are columns:
both prior gradients are then matrix-vector products, deterministic ones.
"""

import math
from collections.abc import Sequence
from dataclasses import InitVar, dataclass
from typing import Protocol

import torch
from torch import Tensor

from bayesattn.attention.kernels.strided.band import Band, drop_tiny_, scratch, split_first, unskew
from bayesattn.attention.kernels.strided.heads import Share
from bayesattn.attention.terms import Terms

_LOG2_E = math.log2(math.e)
_TILE_ELEMENTS = 1 << 19


class Tilt(Protocol):
    """What makes some columns of the keys others for each block of queries."""

    rows: int
    """Of a block."""

    def fill(self, part: slice, a: int, keys: slice, k: Tensor, rows_of_k: Tensor) -> None:
        """Write them for queries from a on, into k [n, D, S] and rows_of_k [n, S, D]."""
        ...


def tile_shape(end: int, heads: int) -> tuple[int, int]:
    """Queries and keys per tile of so many heads."""
    if end <= 2048:
        return 64, 2048
    return 128, max(512, min(2048, _TILE_ELEMENTS // (128 * heads)))


def differentiate_band(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    evidence: Tensor,
    terms: Terms,
    share: Share,
    *,
    wanted: tuple[bool, bool] = (True, True),
    sink: bool = False,
    tilt: Tilt | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """Gradients of q, k, v, table, content and temper; arguments as in `attend_band`.

    Those of content and temper are [N, H, T], one for each sequence. Those of table and temper are
    0 where they are not `wanted`. With a `sink` in output and evidence, a query that sees one key
    does not give it all. With a `tilt`, the prior is in columns of q and k as well.
    """
    table, content, temper, seen, scale = terms[:5]
    assert table is not None
    q_shape, (batch, heads, num_queries) = q.shape, q.shape[:3]
    end = seen.end
    wide = torch.promote_types(q.dtype, torch.float32)
    rows, keys = tile_shape(end, heads)
    rows, keys = min(rows if tilt is None else tilt.rows, num_queries), min(keys, end)
    band = Band.of(table.to(wide) * _LOG2_E, seen, rows)

    delta = (grad.to(wide) * out.to(wide)).sum(-1, keepdim=True)
    q, k, v, grad = (x.to(wide).reshape(batch * heads, -1, x.shape[3]) for x in (q, k, v, grad))
    evidence, delta = evidence.reshape(-1, num_queries, 1), delta.reshape(-1, num_queries, 1)
    dq, dk, dv = torch.empty_like(q), _columns(k, k.mT.shape), _columns(v, v.mT.shape)
    dtable = table.new_zeros(heads, table.shape[1], dtype=wide)
    factor = torch.full((1, 1, 1), scale, dtype=wide)
    if content is not None:
        factor = (content * scale).repeat(batch, 1)[..., None]
    factor = factor.expand(batch * heads, num_queries, 1)
    dtemper = None if temper is None else table.new_zeros(batch, heads, num_queries, dtype=wide)

    # as much at once as keeps a tile in cache: some heads of one sequence, or all of several
    room = max(1, _TILE_ELEMENTS // (rows * keys))
    step, count = min(room, heads), max(1, min(room // heads, batch))
    size = count * step * rows * (keys + rows)
    for n in range(0, batch, count):
        for h in range(0, heads, step):
            own = slice(h, min(h + step, heads))
            last = (min(n + count, batch) - 1) * heads
            part = slice(n * heads + own.start, last + own.stop)
            tiles = _Tiles(
                band.heads(own),
                None if temper is None else temper[own].flip(1),
                torch.cat([q[part] * factor[part], -evidence[part]], -1).mul_(_LOG2_E).flip(1),
                torch.cat([grad[part], -delta[part]], -1).flip(1),
                k[part],
                _transposed(k[part]),
                _transposed(v[part]),
                share,
                wanted,
                (rows, keys),
                part,
                scratch("tiles", (3, size), q),
                sink=sink,
                tilt=tilt,
            )
            tiles.run(dq[part], dk[part], dv[part])
            dtable[own, : band.span] += tiles.dline[:, end - band.span : end].flip(1)
            if dtemper is not None and tiles.dtemper is not None:
                dtemper[n : n + count, own] += tiles.dtemper.flip(2)
    dcontent = None
    if content is not None:
        dcontent = ((dq * q).sum(-1) * scale).view(batch, heads, -1)
    dq *= factor
    dk *= 1 / _LOG2_E  # the query it was multiplied with carried the factor
    dk, dv = (split_first(x, (batch, heads)).mT for x in (dk, dv))
    return dq.view(q_shape), dk, dv, dtable, dcontent, dtemper


def _transposed(x: Tensor) -> Tensor:
    """[n, S, D] as [n, D + 1, S], ones in the last row."""
    many, length, width = x.shape
    wider = _columns(x, (many, width + 1, length)).fill_(1.0)
    wider[:, :width] = x.mT
    return wider


def _columns(like: Tensor, shape: Sequence[int]) -> Tensor:
    """Zeros [n, D, S], rows of which are never a power of 2 apart: that evicts them from caches."""
    many, width, length = shape
    return like.new_zeros(many, width, length // 16 * 16 + 48)[:, :, :length]


@dataclass
class _Tiles:
    """The tiles of some heads of some sequences, all in one first dimension; queries reversed."""

    band: Band
    temper: Tensor | None
    q: Tensor
    grad: Tensor
    rows_of_k: Tensor
    k: Tensor
    v: Tensor
    share: Share
    wanted: tuple[bool, bool]
    shape: tuple[int, int]
    part: slice
    work: InitVar[Tensor]
    sink: bool = False
    tilt: Tilt | None = None

    def __post_init__(self, work: Tensor) -> None:
        self.posterior, self.product, self.skewed = work
        self.skewed.zero_()
        self.ones = self.q.new_ones(self.q.shape[0], 1, self.shape[0])
        self.dline = torch.zeros_like(self.band.reversed)
        heads = len(self.dline)
        self.lead = (self.q.shape[0] // heads, heads)
        self.dtemper = (
            None if self.temper is None else self.temper.new_zeros(self.lead[0], *self.temper.shape)
        )

    def run(self, dq: Tensor, dk: Tensor, dv: Tensor) -> None:
        rows, keys = self.shape
        end, num_queries = self.band.end, self.q.shape[1]
        for a in range(end - num_queries, end, rows):
            b = min(a + rows, end)
            dq_block = dq.new_zeros(dq.shape[0], b - a, dq.shape[2])
            for low, high in self.share.keys.ranges(a, b):
                if self.tilt is not None:
                    self.tilt.fill(self.part, a, slice(low, high), self.k, self.rows_of_k)
                for hi in range(high, low, -keys):
                    self._tile(a, b, max(low, hi - keys), hi, dq_block, dk, dv)
            dq[:, a - end + num_queries : b - end + num_queries] = dq_block.flip(1)

    def _tile(self, a: int, b: int, lo: int, hi: int, dq: Tensor, dk: Tensor, dv: Tensor) -> None:
        many, rows, cols = len(dk), b - a, hi - lo
        block = slice(self.band.end - b, self.band.end - a)
        q, grad, k, v = (
            self.q[:, block],
            self.grad[:, block],
            self.k[:, :, lo:hi],
            self.v[:, :, lo:hi],
        )

        posterior = self.posterior[: many * rows * cols].view(many, rows, cols)
        self._scores(q, k, a, b, lo, hi, out=posterior)
        if self.tilt is not None or not self.share.flat:
            drop_tiny_(posterior)
        posterior.exp2_()
        self._lone(posterior, a).round_()
        dv[:, :, lo:hi] += torch.bmm(grad[..., :-1].mT, posterior)

        product = self.product[: many * rows * cols].view(many, rows, cols)
        torch.bmm(grad, v, out=product)
        ds, skewed = product, None
        if any(self.wanted):
            skewed = self._skewed(many, rows)
            whole = unskew(skewed, skewed.shape[2] - rows + 1)
            ds = whole[:, :, :cols]
            whole[:, :, cols:] = 0.0  # what lies outside the matrix is never written
        torch.mul(posterior, product, out=ds)
        self._lone(ds, a).zero_()
        dq.baddbmm_(ds, self.rows_of_k[:, lo:hi])
        dk[:, :, lo:hi] += torch.bmm(q[..., :-1].mT, ds)
        if skewed is not None:
            ds[:, :, : max(0, self.band.exempt - lo)] = 0.0
            columns = self.band.columns(a, b, lo, hi)
            self._add_prior(skewed[:, :, : cols + rows - 1], block, columns)

    def _skewed(self, many: int, rows: int) -> Tensor:
        """[many, rows, ...] for any number of keys; the last block may have fewer rows."""
        width = self.shape[1] + rows - 1
        if rows < self.shape[0]:
            self.skewed.zero_()
        return self.skewed[: many * rows * width].view(many, rows, width)

    def _scores(self, q: Tensor, k: Tensor, a: int, b: int, lo: int, hi: int, out: Tensor) -> None:
        """Base-2 logarithms of the posterior of queries b-1 .. a over keys lo .. hi-1."""
        band = self.band
        if self.share.flat and hi <= a + 1:
            torch.bmm(q, k, out=out)
            return
        temper = None if self.temper is None else self.temper[:, band.end - b : band.end - a]
        if self.share.flat:
            bias = band.hidden(a, b, lo, hi)
        elif temper is None and lo >= band.exempt:
            bias = band.view(a, b, lo, hi)
        else:
            bias = band.tempered(temper, a, b, lo, hi, self.product)
        split_first(out, self.lead).copy_(bias)
        out.baddbmm_(q, k)

    def _add_prior(self, skewed: Tensor, block: slice, columns: slice) -> None:
        """Gradients of table and temper from dS, whose diagonals are columns here."""
        diagonals = split_first(skewed, self.lead)
        if self.temper is None or self.dtemper is None:
            summed = torch.bmm(self.ones[:, :, : skewed.shape[1]], skewed)[:, 0]
            self.dline[:, columns] += split_first(summed, self.lead).sum(0)
            return
        if self.wanted[0]:
            temper = self.temper[:, None, block]
            self.dline[:, columns] += (temper @ diagonals)[:, :, 0].sum(0)
        if self.wanted[1] and not self.share.flat:
            # the vector on the left: on the right it would be a product of narrow matrices,
            # which takes ten times as long
            line = self.band.reversed[:, None, columns]
            self.dtemper[:, :, block] += (line @ diagonals.mT)[:, :, 0] / _LOG2_E

    def _lone(self, tile: Tensor, a: int) -> Tensor:
        """Rows of queries that see one key: its posterior is 1 and the scores have no gradient.

        Rounding says otherwise, and a prior of -1e10 at distance 0 (beta < 0) would blow that up.
        """
        if self.sink:
            return tile[:, :0]
        if self.band.span == 1:
            return tile
        return tile[:, -1:] if a == 0 else tile[:, :0]
