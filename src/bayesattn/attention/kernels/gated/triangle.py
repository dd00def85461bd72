"""A piece whose prior is gates alone: torch's flash attention on squares and rectangles.

Gates whose temperature is 1 are a bias per key, which the kernel adds at a small price. Where SSMax
scales them row by row they are a column, temper_i / scale of a query times c_m - c_j of a key. The
backward pass always takes the column, since the gradient of a key's bias is that of its column:

    d c_j = -Σ_i temper_i ds_ij    d c_i = temper_i Σ_j ds_ij    d temper_i = Σ_j ds_ij (c_i - c_j)

The last two need the sum of each row of a part. It is that of a second column, 0 in queries and 1
in keys. Over all parts a row sums to 0, but for exempt keys and a sink.
"""

from collections.abc import Iterator

import torch

from bayesattn.attention.kernels.gated.parts import cut
from bayesattn.attention.kernels.gated.piece import (
    Gradients,
    Piece,
    Slopes,
    add_rows,
    column,
    widen,
)
from bayesattn.attention.kernels.gated.reach import Reach, Share
from bayesattn.attention.kernels.strided.forward import Mean, merge_


def attend_triangle(piece: Piece, *, skip: bool) -> Mean:
    """Posterior mean [N, H, T, D] and log-evidence [N, H, T]."""
    q, k, v, decay, terms = piece
    width = q.shape[3]
    tilted = decay is not None and terms.temper is not None
    if tilted:
        q, k, v = (widen(x, 1) for x in (q, k, v))
        q[..., width] = column(terms.temper, terms.scale, q)
    out, evidence = q.new_empty(*q.shape[:3], width), q.new_empty(q.shape[:3])
    for share, rows, keys in _shares(piece, skip):
        part, bias = share.part, None
        if part.origin is not None:
            bias = piece.forgotten(part.lo, part.hi, part.origin)
        if tilted:
            k[:, :, keys, width] = 0.0 if bias is None else bias
            bias = None
        some = (share.take(q, rows), share.take(k, keys), share.take(v, keys))
        o, e = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            *some,
            0.0,
            part.causal,
            attn_mask=None if bias is None else share.take(bias, slice(None))[:, :, None],
            scale=terms.scale,
        )
        if part.origin is not None:
            e = e + share.take(piece.gone(part.a, part.b, part.origin), slice(None))
        mean = (o[..., :width], e)
        if not part.causal:
            mean = merge_((share.take(out, rows), share.take(evidence, rows)), mean)
        share.put(out, rows, mean[0])
        share.put(evidence, rows, mean[1])
    return out, evidence


def differentiate_triangle(piece: Piece, slopes: Slopes, *, skip: bool) -> Gradients:
    """Gradients of everything in the piece."""
    decay, terms, width = piece.decay, piece.terms, piece.q.shape[3]
    temper, seen = terms.temper, terms.seen
    sums = decay is not None and (temper is not None or seen.exempt > 0)
    columns = 0 if decay is None else 1 + sums
    q, k, v, grad, out = (widen(x, columns) for x in (*piece[:3], slopes.grad, slopes.out))
    if decay is not None:
        q[..., width] = column(temper, terms.scale, q)
    if sums:
        k[..., width + 1] = 1 / terms.scale
    totals = [torch.zeros_like(x) for x in piece[:3]]
    ddecay = None if decay is None else torch.zeros_like(decay)
    dtemper = None if temper is None else torch.zeros_like(slopes.evidence)
    for share, rows, keys in _shares(piece, skip):
        part, evidence = share.part, slopes.evidence[:, :, rows]
        if decay is not None:
            k[:, :, keys, width] = 0.0
        if part.origin is not None:
            evidence = evidence - piece.gone(part.a, part.b, part.origin)
            k[:, :, keys, width] = piece.forgotten(part.lo, part.hi, part.origin)
        places = (rows, rows, keys, keys, rows)
        some = (share.take(x, at) for x, at in zip((grad, q, k, v, out), places, strict=True))
        found = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
            *some, share.take(evidence, slice(None)), 0.0, part.causal, scale=terms.scale
        )
        for total, place, one in zip(totals, (rows, keys, keys), found, strict=True):
            share.put(total, place, share.take(total, place) + one[..., :width])
        if ddecay is None or part.origin is None:
            continue
        share.put(ddecay, keys, share.take(ddecay, keys) - found[1][..., width])
        if sums:
            pulled, summed = (
                share.spread(found[0][..., width + n], slopes.evidence.shape[1]) for n in (0, 1)
            )
            place = (part.a, part.b, part.origin)
            add_rows(piece, place, summed, pulled / terms.scale, ddecay, dtemper)
    if ddecay is not None and not sums and slopes.escaped is not None:
        ddecay[..., seen.offset :] += slopes.escaped
    dq, dk, dv = totals
    return Gradients(dq, dk, dv, None, dtemper, ddecay)


def _shares(piece: Piece, skip: bool) -> Iterator[tuple[Share, slice, slice]]:
    """What has to be computed, with the places of its rows and keys."""
    seen, reach = piece.terms.seen, Reach(piece, skip)
    for part in cut(seen.offset, seen.end, seen.exempt, piece.change):
        for share in reach.shares(part):
            a, b, lo, hi, *_ = share.part
            yield share, slice(a - seen.offset, b - seen.offset), slice(lo, hi)
