"""A piece whose prior is gates alone: torch's flash attention on squares and rectangles.

Gates whose temperature is 1 are a bias per key, which the kernel adds at a small price. Where SSMax
scales them row by row they are a column, temper_i / scale of a query times c_m - c_j of a key. The
backward pass always takes the column, since the gradient of a key's bias is that of its column:

    d c_j = -Σ_i temper_i ds_ij    d c_i = temper_i Σ_j ds_ij    d temper_i = Σ_j ds_ij (c_i - c_j)

The last two need the sum of each row of a part. It is that of a second column, 0 in queries and 1
in keys. Over all parts a row sums to 0, but for exempt keys and a sink.
"""

import torch

from bayesattn.attention.kernels.gated.parts import Part, cut
from bayesattn.attention.kernels.gated.piece import (
    Gradients,
    Piece,
    Slopes,
    add_rows,
    column,
    widen,
)
from bayesattn.attention.kernels.strided.forward import Mean, merge_


def attend_triangle(piece: Piece) -> Mean:
    """Posterior mean [N, H, T, D] and log-evidence [N, H, T]."""
    q, k, v, decay, terms = piece
    seen, width = terms.seen, q.shape[3]
    tilted = decay is not None and terms.temper is not None
    if tilted:
        q, k, v = (widen(x, 1) for x in (q, k, v))
        q[..., width] = column(terms.temper, terms.scale, q)
    out, evidence = q.new_empty(*q.shape[:3], width), q.new_empty(q.shape[:3])
    for part in cut(seen.offset, seen.end, seen.exempt, decay):
        rows, keys = _places(part, seen.offset)
        bias = None
        if part.origin is not None:
            bias = piece.forgotten(part.lo, part.hi, part.origin)[:, :, None]
        if tilted:
            k[:, :, keys, width] = 0.0 if bias is None else bias[:, :, 0]
            bias = None
        some = (q[:, :, rows], k[:, :, keys], v[:, :, keys])
        o, e = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            *some, 0.0, part.causal, attn_mask=bias, scale=terms.scale
        )
        if part.origin is not None:
            e = e + piece.gone(part.a, part.b, part.origin)
        if part.causal:
            out[:, :, rows], evidence[:, :, rows] = o[..., :width], e
        else:
            merge_((out[:, :, rows], evidence[:, :, rows]), (o[..., :width], e))
    return out, evidence


def differentiate_triangle(piece: Piece, slopes: Slopes) -> Gradients:
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
    dq, dk, dv = (torch.zeros_like(x) for x in piece[:3])
    ddecay = None if decay is None else torch.zeros_like(decay)
    dtemper = None if temper is None else torch.zeros_like(slopes.evidence)
    for part in cut(seen.offset, seen.end, seen.exempt, decay):
        rows, keys = _places(part, seen.offset)
        evidence = slopes.evidence[:, :, rows]
        if decay is not None:
            k[:, :, keys, width] = 0.0
        if part.origin is not None:
            evidence = evidence - piece.gone(part.a, part.b, part.origin)
            k[:, :, keys, width] = piece.forgotten(part.lo, part.hi, part.origin)
        some = (grad[:, :, rows], q[:, :, rows], k[:, :, keys], v[:, :, keys], out[:, :, rows])
        found = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
            *some, evidence, 0.0, part.causal, scale=terms.scale
        )
        for total, place, one in zip((dq, dk, dv), (rows, keys, keys), found, strict=True):
            total[:, :, place] += one[..., :width]
        if ddecay is None or part.origin is None:
            continue
        ddecay[..., keys] -= found[1][..., width]
        if sums:
            pulled, summed = found[0][..., width] / terms.scale, found[0][..., width + 1]
            add_rows(piece, (part.a, part.b, part.origin), summed, pulled, ddecay, dtemper)
    if ddecay is not None and not sums and slopes.escaped is not None:
        ddecay[..., seen.offset :] += slopes.escaped
    return Gradients(dq, dk, dv, None, dtemper, ddecay)


def _places(part: Part, offset: int) -> tuple[slice, slice]:
    return slice(part.a - offset, part.b - offset), slice(part.lo, part.hi)
