"""A piece whose prior is gates alone: torch's flash attention on squares and rectangles.

Gates whose temperature is 1 are a bias per key, which the kernel adds at a small price. Where SSMax
scales them row by row they are a column, temper_i / scale of a query times c_m - c_j of a key.
"""

from collections.abc import Iterator

import torch

from bayesattn.attention.kernels.gated.parts import cut
from bayesattn.attention.kernels.gated.piece import Piece, column, widen
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


def _shares(piece: Piece, skip: bool) -> Iterator[tuple[Share, slice, slice]]:
    """What has to be computed, with the places of its rows and keys."""
    seen, reach = piece.terms.seen, Reach(piece, skip)
    for part in cut(seen.offset, seen.end, seen.exempt, piece.change):
        for share in reach.shares(part):
            a, b, lo, hi, *_ = share.part
            yield share, slice(a - seen.offset, b - seen.offset), slice(lo, hi)
