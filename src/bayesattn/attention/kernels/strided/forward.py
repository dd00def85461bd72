"""Forward pass of the strided kernel: torch's CPU flash attention on blocks of queries and keys."""

import math

import torch
from torch import Tensor

from bayesattn.attention.kernels.strided.band import (
    INVISIBLE,
    Band,
    drop_tiny_,
    scratch,
    split_first,
)
from bayesattn.attention.kernels.strided.far import FarKeys, far_keys, smooth
from bayesattn.attention.kernels.strided.heads import Keys, Range
from bayesattn.attention.kernels.strided.sizes import CHUNK
from bayesattn.attention.terms import Terms
from bayesattn.attention.visibility import Visibility

# Flash attention is a tenth quicker on 768 queries or more, but all of them would see every key up
# to the last. So large blocks take the keys before them, and small ones what lies on the diagonal.
_BLOCKS = (768, 2048)
_DIAGONAL = 256
_FAR = 768  # keys before a block that are worth a call of their own
_WIDE = 4  # keys that a block looks back, in blocks, lest most of its rows see too many
# A bias that has to be written out is best read again from cache: so many elements at a time, of
# at least two heads, so that two threads have one each.
_TILE_ELEMENTS = 1 << 21
_TILE_KEYS = {"near": 2048, "far": 512}
# From so many keys on, large blocks pay for a bias that is written out, too. Of many more keys most
# are far from a block, the smaller it is the more, and far keys need nothing written out.
_LONG, _LONG_BLOCK = 4096, 1536
_LONGER, _FAR_BLOCK = 8192, 1024
_FAR_FIELD = 2048  # far keys that are worth a product of small rank
_WRITTEN = 1 << 18  # scores of a head that are quicker written out than left to flash attention
_LOG2_E = math.log2(math.e)

Mean = tuple[Tensor, Tensor]
"""Posterior mean [N, H, T, D] over some keys, and their log-evidence [N, H, T]."""


def flash(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float, *, causal: bool = False
) -> Mean:
    """Attention with an additive bias, and the log-sum-exp of its scores."""
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        q, k, v, 0.0, causal, attn_mask=bias, scale=scale
    )


def attend_band(
    q: Tensor, k: Tensor, v: Tensor, terms: Terms, keys: Keys, out: Tensor, evidence: Tensor
) -> None:
    """Posterior mean and log-evidence of the queries of one run.

    Args:
        q: [N, H, T, D], or [G, H/G, T, D] for the grouped heads of one sequence.
        k: [N, H, S, D] or [G, H/G, S, D].
        v: like k.
        terms: of the run, see `Terms.at`.
        keys: those that are needed.
        out: where the posterior mean goes, shaped like q.
        evidence: where the log-evidence goes, [N, H, T] or [G, H/G, T].
    """
    table, content, temper, seen, scale = terms[:5]
    assert table is not None
    heads, end, num_queries = table.shape[0], seen.end, seen.num_queries
    lead = (1, heads) if q.shape[1] == heads else (q.shape[0], q.shape[1])
    if num_queries == 1:
        lo, bias = _row(table, temper, seen)
        q = q if content is None else (q * split_first(content, lead)[..., None]).to(q.dtype)
        o, e = flash(q, k[:, :, lo:], v[:, :, lo:], split_first(bias, lead), scale)
        out.copy_(o)
        evidence.copy_(e)
        return
    block = _block(seen, keys, tempered=temper is not None)
    if temper is not None:
        # heads in groups that share their keys stay together
        group = 1 if q.shape[1] == heads else q.shape[1]
        width = min(end, keys.reach + block)
        step = max(2, int(_TILE_ELEMENTS / (block * width))) // group * group or group
        if step < heads:
            for h in range(0, heads, step):
                some = slice(h, min(h + step, heads))
                q_h, k_h, v_h = (_heads(x, some, heads) for x in (q, k, v))
                out_h, evidence_h = (_heads(x, some, heads) for x in (out, evidence))
                attend_band(q_h, k_h, v_h, terms.heads(some), keys, out_h, evidence_h)
            return
    parts = Parts(k, v, Band.of(table, seen, block), scale, lead)
    b = seen.offset
    while b < end:
        a = b
        far = a - keys.ranges(a, a + 1)[-1][0] >= _FAR
        b = min(a + (block if far else min(block, _DIAGONAL)), end)
        rows = slice(a - seen.offset, b - seen.offset)
        factor = None if temper is None else temper[:, rows].flip(1)
        flipped = q[:, :, rows].flip(2)
        if content is not None:
            flipped.mul_(split_first(content[:, rows].flip(1), lead)[..., None])
        o, e = _attend_block(parts, flipped, factor, a, b, keys.ranges(a, b))
        out[:, :, rows] = o.flip(2)  # with out= torch would copy once more
        evidence[:, :, rows] = e.flip(2)


def _block(seen: Visibility, keys: Keys, *, tempered: bool) -> int:
    """Queries at a time: few if they look at few keys before them."""
    if keys.reach < _FAR:
        block = CHUNK
    elif tempered:
        long = _FAR_BLOCK if seen.end >= _LONGER else _LONG_BLOCK
        block = long if seen.end >= _LONG else _DIAGONAL
    else:
        whole = seen.end // 6 // _DIAGONAL * _DIAGONAL
        block = min(max(whole, _BLOCKS[0]), _BLOCKS[1])
    if keys.reach < _WIDE * block:
        block = max(_DIAGONAL, int(keys.reach / _WIDE) // _DIAGONAL * _DIAGONAL)
    return min(block, seen.num_queries)


def _row(table: Tensor, temper: Tensor | None, seen: Visibility) -> tuple[int, Tensor]:
    """First key that the last query sees, and the log-prior [H, 1, keys] from there on."""
    lo = seen.end - seen.span
    bias = table[:, : seen.span].flip(1)
    if temper is not None:
        bias.mul_(temper)
    bias[:, : max(0, seen.exempt - lo)] = 0.0
    return lo, bias[:, None]


def _attend_block(
    parts: "Parts", q: Tensor, temper: Tensor | None, a: int, b: int, ranges: list[Range]
) -> Mean:
    """Queries b-1 .. a against the keys they need, those before a large block apart."""
    *apart, (lowest, _) = ranges
    if b - a <= _DIAGONAL:
        mean = parts(q, temper, a, b, lowest, b)
    else:
        wide = parts.band.reversed.dtype
        mean = scratch("means", q.shape, q), q.new_empty(q.shape[:3], dtype=wide)
        for s in range(a, b, _DIAGONAL):
            t = min(s + _DIAGONAL, b)
            rows = slice(b - t, b - s)
            factor = None if temper is None else temper[:, rows]
            mean[0][:, :, rows], mean[1][:, :, rows] = parts(q[:, :, rows], factor, s, t, a, t)
        if lowest < a:
            apart.append((lowest, a))
    for lo, hi in apart:
        if temper is not None and (found := parts.far(q, temper, a, b, lo, hi)) is not None:
            (low, high), part = found
            merge_(mean, part)
            if low > lo:
                merge_(mean, parts(q, temper, a, b, lo, low))
            lo = high
        if lo < hi:
            merge_(mean, parts(q, temper, a, b, lo, hi))
    return mean


class Parts:
    """Attention of a block of reversed queries to a range of keys, under a band."""

    def __init__(
        self, k: Tensor, v: Tensor, band: Band, scale: float, lead: tuple[int, int]
    ) -> None:
        """Keys and values [N, H, S, D]; `lead` is how the heads of the band spread over N, H."""
        self.k, self.v, self.band, self.scale, self.lead = k, v, band, scale, lead
        self._far_keys: FarKeys | None = None
        # in float64 a few rows are not enough, and in half precision their columns would round
        single = k.dtype == band.reversed.dtype == torch.float32
        self._smooth: bool | None = None if single else False

    def __call__(self, q: Tensor, temper: Tensor | None, a: int, b: int, lo: int, hi: int) -> Mean:
        """Queries b-1 .. a, factors [H, b-a] of their prior, against keys lo .. hi-1."""
        exempt = self.band.exempt
        if hi == b and (hi - lo) * (b - a) <= _WRITTEN:
            return self._written(q, temper, a, b, lo)
        if temper is None and lo >= exempt:
            return self._flash(q, self.band.view(a, b, lo, hi), a, b, lo, hi)
        if temper is None and hi > exempt:
            rest = self._flash(q, self.band.view(a, b, exempt, hi), a, b, exempt, hi)
            return merge_(rest, self(q, temper, a, b, lo, exempt))
        heads, rows = self.band.reversed.shape[0], b - a
        step = _TILE_KEYS["far"]
        if rows <= _DIAGONAL:
            step = max(_TILE_KEYS["near"], _TILE_ELEMENTS // (heads * rows))
        mean: Mean | None = None
        for top in range(hi, lo, -step):
            bottom = max(lo, top - step)
            size = heads * rows * (top - bottom + rows - 1)
            work = scratch("tile", (size,), self.band.reversed)
            bias = self.band.tempered(temper, a, b, bottom, top, work)
            part = self._flash(q, bias, a, b, bottom, top)
            mean = part if mean is None else merge_(mean, part)
        assert mean is not None, "no keys"
        return mean

    def _written(self, q: Tensor, temper: Tensor | None, a: int, b: int, lo: int) -> Mean:
        """Queries and the keys up to their own, every score written out, some sequences at once."""
        if temper is None and lo >= self.band.exempt:
            bias = self.band.view(a, b, lo, b)
        else:
            heads, rows = self.band.reversed.shape[0], b - a
            work = scratch("tile", (heads * rows * (b - lo + rows - 1),), self.band.reversed)
            bias = self.band.tempered(temper, a, b, lo, b, work)
        count, own = len(q), split_first(bias, self.lead)
        bias = own.expand(count, -1, -1, -1)
        step = max(1, _TILE_ELEMENTS // own[0].numel())
        some = [slice(n, n + step) for n in range(0, count, step)]
        k, v = self.k[:, :, lo:b], self.v[:, :, lo:b]
        parts = [_attend(q[n], k[n], v[n], bias[n], self.scale) for n in some]
        if len(parts) == 1:
            return parts[0]
        return torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])

    def far(
        self, q: Tensor, temper: Tensor, a: int, b: int, lo: int, hi: int
    ) -> tuple[Range, Mean] | None:
        """Those of keys lo .. hi-1 that are far from queries b-1 .. a, if many and smooth."""
        low, high = far_keys(self.band, a, b)
        lo, hi = max(lo, low), min(hi, high)
        if hi - lo < _FAR_FIELD or b - a < _FAR_BLOCK:
            return None
        if self._smooth is None:
            self._smooth = smooth(self.band, b - a)
        if not self._smooth:
            return None
        if self._far_keys is None:
            self._far_keys = FarKeys(self.k, self.v, self.band, self.lead)
        k, v = self._far_keys.keys(a, b, lo, hi)
        q_far = self._far_keys.queries(q, temper, self.scale)
        out, evidence = flash(q_far, k, v, None, self.scale)
        return (lo, hi), (out[..., : q.shape[3]], evidence)

    def _flash(self, q: Tensor, bias: Tensor, a: int, b: int, lo: int, hi: int) -> Mean:
        k, v = self.k[:, :, lo:hi], self.v[:, :, lo:hi]
        out, evidence = flash(q, k, v, split_first(bias, self.lead), self.scale)
        # flash reports evidence 0 for queries that see none of the keys: those whose window begins
        # above them, and those that come before them
        if (blind := b - hi - self.band.span + 1) > 0:
            evidence[:, :, :blind] = INVISIBLE
        if lo > a:
            evidence[:, :, b - lo :] = INVISIBLE
        return out, evidence


def _attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, scale: float) -> Mean:
    """The same as `flash`, every score written out; in base 2."""
    shape, dtype = q.shape[:3], q.dtype
    scores = scratch("scores", tuple(bias.shape), bias).copy_(bias).flatten(0, 1)
    q, k, v = (x.flatten(0, 1).to(bias.dtype) for x in (q, k, v))
    scores.baddbmm_(q, k.mT, beta=_LOG2_E, alpha=scale * _LOG2_E)
    top = scores.amax(-1, keepdim=True)
    drop_tiny_(scores.sub_(top)).exp2_()
    mass = scores.sum(-1, keepdim=True)
    mean = torch.bmm(scores, v).div_(mass)
    evidence = mass.log2_().add_(top).div_(_LOG2_E)
    return mean.view(*shape, -1).to(dtype), evidence.view(shape)


def merge_(x: Mean, y: Mean) -> Mean:
    """Make x the mean over its keys and those of y, two disjoint sets."""
    evidence = torch.logaddexp(x[1], y[1])
    share = (y[1] - evidence).exp().nan_to_num(0.0)  # -inf - -inf: a query that sees neither
    x[0].lerp_(y[0], share[..., None].to(x[0].dtype))
    x[1].copy_(evidence)
    return x


def _heads(x: Tensor, some: slice, heads: int) -> Tensor:
    """Some heads of [N, H, ...] or, if they are whole groups, of [G, H/G, ...]."""
    if x.shape[1] == heads:
        return x[:, some]
    return x[some.start // x.shape[1] : some.stop // x.shape[1]]
