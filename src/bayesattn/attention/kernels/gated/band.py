"""Gates as one more column of the strided kernel, which has a prior over distance and windows.

    queries  [q_i, temper_i / scale, temper_i (c_m - c_i) / scale]       keys  [k_j, c_m - c_j, 0]

and [k_j, 0, 1] for exempt keys, whose log-prior is 0 and not what was forgotten. Queries are taken
in runs across which c changes little, each counting from its own first query m. The backward pass
of gates alone is this one, too: in torch's own, subnormal numbers take most of the time.
"""

import torch
from torch import Tensor

from bayesattn.attention.kernels.gated.parts import chunks
from bayesattn.attention.kernels.gated.piece import (
    Gradients,
    Piece,
    Slopes,
    add_rows,
    column,
    widen,
)
from bayesattn.attention.kernels.gated.reach import Reach, alike
from bayesattn.attention.kernels.strided.backward import differentiate_band
from bayesattn.attention.kernels.strided.forward import Mean, attend_band
from bayesattn.attention.kernels.strided.heads import Keys, Share
from bayesattn.attention.terms import Terms
from bayesattn.attention.visibility import Visibility


def attend_tilted(piece: Piece) -> Mean:
    """Posterior mean [N, H, T, D] and log-evidence [N, H, T]."""
    seen, width, terms = piece.terms.seen, piece.q.shape[3], _with_table(piece)
    columns = _columns(piece)
    q, k, v = (widen(x, columns) for x in piece[:3])
    out, evidence = torch.empty_like(q), q.new_empty(q.shape[:3])
    for a, b in chunks(seen.offset, seen.end, piece.change):
        rows, keys, own = _chunk(terms, a, b, _first(terms, a))
        _fill(piece, q, k, a, b)
        some = (q[:, :, rows], k[:, :, keys], v[:, :, keys])
        attend_band(*some, own, Keys(own.seen), out[:, :, rows], evidence[:, :, rows])
        if piece.decay is not None:
            evidence[:, :, rows] += piece.gone(a, b, a)
    return out[..., :width], evidence


def differentiate_tilted(piece: Piece, slopes: Slopes, *, skip: bool) -> Gradients:
    """Gradients of everything in the piece; without a prior over distance, too.

    Heads that forget quickly need many short runs, and few keys before each.
    """
    terms = piece.terms
    dq, dk, dv = (torch.zeros_like(x) for x in piece[:3])
    dtable = None if terms.table is None else torch.zeros_like(terms.table)
    dtemper = None if terms.temper is None else torch.zeros_like(slopes.evidence)
    ddecay = None if piece.decay is None else torch.zeros_like(piece.decay)
    total = Gradients(dq, dk, dv, dtable, dtemper, ddecay)
    for some in alike(piece):
        escaped = None if slopes.escaped is None else slopes.escaped[:, some]
        grad, out, evidence = (x[:, some] for x in slopes[:3])
        own = Slopes(grad, out, evidence, escaped)
        found = _differentiate(piece.heads(some), own, skip=skip)
        for whole, part in zip(total, found, strict=True):
            if whole is not None and part is not None:
                whole[some if whole is dtable else (slice(None), some)] = part
    return total


def _differentiate(piece: Piece, slopes: Slopes, *, skip: bool) -> Gradients:
    seen, width, terms = piece.terms.seen, piece.q.shape[3], _with_table(piece)
    columns, scale = _columns(piece), terms.scale
    q, k, v = (widen(piece.q, columns), widen(piece.k, columns), piece.v)
    dq, dk, dv = (torch.zeros_like(x) for x in piece[:3])
    assert terms.table is not None
    dtable = torch.zeros_like(terms.table)
    dtemper = None if terms.temper is None else torch.zeros_like(slopes.evidence)
    ddecay = None if piece.decay is None else torch.zeros_like(piece.decay)
    by_distance = piece.terms.table is not None
    wanted, sink = (by_distance, by_distance and dtemper is not None), slopes.escaped is not None
    reach = Reach(piece, skip)
    for a, b in chunks(seen.offset, seen.end, piece.change):
        rows, keys, own = _chunk(terms, a, b, reach.first(a, b, _first(terms, a)))
        _fill(piece, q, k, a, b)
        evidence = slopes.evidence[:, :, rows]
        if piece.decay is not None:
            evidence = evidence - piece.gone(a, b, a)
        grad, out = slopes.grad[:, :, rows], slopes.out[:, :, rows]
        some = (grad, q[:, :, rows], k[:, :, keys], v[:, :, keys], out)
        every = Share(slice(None), Keys(own.seen), flat=False)
        *found, found_table, _, found_temper = differentiate_band(
            *some, evidence, own, every, wanted=wanted, sink=sink
        )
        for total, place, one in zip((dq, dk, dv), (rows, keys, keys), found, strict=True):
            total[:, :, place] += one[..., :width]
        dtable += found_table
        if dtemper is not None and found_temper is not None:
            dtemper[..., rows] += found_temper
        if ddecay is None:
            continue
        gated = slice(min(max(keys.start, seen.exempt), keys.stop), keys.stop)
        ddecay[..., gated] -= found[1][:, :, gated.start - keys.start :, width]
        summed = torch.zeros_like(evidence)
        if slopes.escaped is not None:
            summed = summed + slopes.escaped[..., rows]
        if seen.exempt:
            summed = summed - found[0][..., width + 1] / scale
        pulled = found[0][..., width] / scale
        add_rows(piece, (a, b, a), summed, pulled, ddecay, dtemper)
    return Gradients(dq, dk, dv, dtable if by_distance else None, dtemper, ddecay)


def _columns(piece: Piece) -> int:
    return 0 if piece.decay is None else 1 + (piece.terms.seen.exempt > 0)


def _with_table(piece: Piece) -> Terms:
    """Terms of a prior over distance, 0 everywhere if there is none."""
    terms, heads = piece.terms, piece.q.shape[1]
    table = terms.table
    if table is None:
        table = piece.q.new_zeros(heads, terms.seen.span)
    return Terms(table, None, terms.temper, terms.seen, terms.scale)


def _first(terms: Terms, a: int) -> int:
    """First key that a query from a on sees."""
    return 0 if terms.seen.window is None else max(0, a - terms.seen.window + 1)


def _chunk(terms: Terms, a: int, b: int, lo: int) -> tuple[slice, slice, Terms]:
    """Rows of queries a .. b-1, keys from lo on, and terms that count from there."""
    seen = terms.seen
    rows = slice(a - seen.offset, b - seen.offset)
    own = Visibility(b - a, a - lo, None, seen.window, max(0, seen.exempt - lo))
    temper = None if terms.temper is None else terms.temper[:, rows]
    return rows, slice(lo, b), terms._replace(seen=own, temper=temper)


def _fill(piece: Piece, q: Tensor, k: Tensor, a: int, b: int) -> None:
    """Write the columns of queries a .. b-1 and of the keys up to them."""
    if piece.decay is None:
        return
    terms, width = piece.terms, piece.q.shape[3]
    exempt, rows = terms.seen.exempt, slice(a - terms.seen.offset, b - terms.seen.offset)
    temper = None if terms.temper is None else terms.temper[:, rows]
    q[:, :, rows, width] = column(temper, terms.scale, q)
    k[:, :, :b, width] = piece.forgotten(0, b, a)
    if exempt:
        q[:, :, rows, width + 1] = -piece.gone(a, b, a) / terms.scale
        k[:, :, :exempt, width] = 0.0
        k[:, :, :exempt, width + 1] = 1.0
