"""Gates as one more column of the strided kernel, which has a prior over distance and windows.

    queries  [q_i, temper_i / scale, temper_i (c_m - c_i) / scale]       keys  [k_j, c_m - c_j, 0]

and [k_j, 0, 1] for exempt keys, whose log-prior is 0 and not what was forgotten. Queries are taken
in runs across which c changes little, each counting from its own first query m. Going backward,
these are the blocks of queries that are differentiated one after the other, for each of which the
column is written anew. The backward pass of gates alone is this one, too: in torch's own, subnormal
numbers take most of the time.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from bayesattn.attention.kernels.gated.parts import chunks
from bayesattn.attention.kernels.gated.piece import (
    Gradients,
    Piece,
    Slopes,
    column,
    widen,
)
from bayesattn.attention.kernels.gated.reach import groups
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

    Heads that forget quickly need small blocks, and few keys before each.
    """
    terms = piece.terms
    dq, dk, dv = (torch.zeros_like(x) for x in piece[:3])
    dtable = None if terms.table is None else torch.zeros_like(terms.table)
    dtemper = None if terms.temper is None else torch.zeros_like(slopes.evidence)
    ddecay = None if piece.decay is None else torch.zeros_like(piece.decay)
    total = Gradients(dq, dk, dv, dtable, dtemper, ddecay)
    for some, rows, keys in groups(piece, skip):
        escaped = None if slopes.escaped is None else slopes.escaped[:, some]
        grad, out, evidence = (x[:, some] for x in slopes[:3])
        own = Slopes(grad, out, evidence, escaped)
        found = _differentiate(piece.heads(some), own, rows, keys)
        for whole, part in zip(total, found, strict=True):
            if whole is not None and part is not None:
                place = some if whole is dtable else (slice(None), some)
                whole[place] = part.to(whole.dtype)  # gates may be wider than queries
    return total


def _differentiate(piece: Piece, slopes: Slopes, rows: int, keys: Keys) -> Gradients:
    seen, width, terms = piece.terms.seen, piece.q.shape[3], piece.terms
    tilt = None if piece.decay is None else _Gates.of(piece, rows)
    q, k, evidence = piece.q, piece.k, slopes.evidence
    if tilt is not None:
        q, k = tilt.widened(q, k)
        evidence = evidence - tilt.gone
    by_distance = terms.table is not None
    wanted = by_distance, by_distance and terms.temper is not None
    flat = not by_distance and seen.span == seen.end
    dq, dk, dv, dtable, _, dtemper = differentiate_band(
        *(slopes.grad, q, k, piece.v, slopes.out, evidence),
        _with_table(piece),
        Share(slice(None), keys, flat=flat),
        wanted=wanted,
        sink=slopes.escaped is not None,
        tilt=tilt,
    )
    ddecay = None
    if tilt is not None:
        ddecay, more = tilt.gradients(dq[..., width:] / terms.scale, dk[..., width], slopes.escaped)
        dtemper = None if dtemper is None or more is None else dtemper + more
    table = dtable if by_distance else None
    return Gradients(dq[..., :width], dk[..., :width], dv, table, dtemper, ddecay)


@dataclass
class _Gates:
    """Columns of gates for the backward pass, where c counts from the first query of each block."""

    piece: Piece
    rows: int
    fallen: Tensor
    """[N, H, T] c_i less that of the first query of its block."""
    lines: Tensor
    """[N · H, S] c."""

    @staticmethod
    def of(piece: Piece, rows: int) -> "_Gates":
        assert piece.decay is not None
        own = piece.decay[..., piece.terms.seen.offset :]
        first = torch.arange(own.shape[-1]) // rows * rows
        fallen = (own - own[..., first]).to(piece.wide)
        return _Gates(piece, rows, fallen, piece.decay.flatten(0, 1))

    @property
    def gone(self) -> Tensor:
        """[N, H, T] the same times the temperature."""
        temper = self.piece.terms.temper
        return self.fallen if temper is None else self.fallen * temper

    def widened(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Queries with their columns, and keys with room for theirs."""
        terms, width, columns = self.piece.terms, q.shape[3], _columns(self.piece)
        q, k = widen(q, columns), widen(k, columns)
        q[..., width] = column(terms.temper, terms.scale, q)
        if exempt := terms.seen.exempt:
            q[..., width + 1] = -self.gone / terms.scale
            k[:, :, :exempt, width + 1] = 1.0
        return q, k

    def fill(self, part: slice, a: int, keys: slice, k: Tensor, rows_of_k: Tensor) -> None:
        width, terms, lines = self.piece.q.shape[3], self.piece.terms, self.lines[part]
        forgotten = (lines[:, a, None] - lines[:, keys]).to(k.dtype)
        forgotten[:, : max(0, terms.seen.exempt - keys.start)] = 0.0
        k[:, width, keys] = forgotten
        if terms.temper is not None:
            rows_of_k[:, keys, width] = forgotten

    def gradients(
        self, rows: Tensor, keys: Tensor, escaped: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Gradients of c and the temperature from those of the columns of queries and of keys.

        Args:
            rows: [N, H, T, columns] Σ_j ds_ij (c_m - c_j) over keys with gates, and Σ_j ds_ij over
                exempt ones.
            keys: [N, H, S] Σ_i temper_i ds_ij.
            escaped: as of `Slopes`.
        """
        terms = self.piece.terms
        summed = torch.zeros_like(self.fallen) if escaped is None else escaped
        if terms.seen.exempt:
            summed = summed - rows[..., 1]
        ddecay = torch.zeros_like(keys) - keys
        ddecay[..., : terms.seen.exempt] = 0.0
        ddecay[..., terms.seen.offset :] += (
            summed if terms.temper is None else summed * terms.temper
        )
        if terms.temper is None:
            return ddecay, None
        return ddecay, rows[..., 0] + self.fallen * summed


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
