"""What one run of queries brings along, and the gradients of it."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from bayesattn.attention.kernels.gated.parts import Change
from bayesattn.attention.terms import Terms


class Piece(NamedTuple):
    """A causal band of queries 0 .. T-1, at index offset .. end-1 among the keys 0 .. end-1."""

    q: Tensor
    """[N, H, T, D]"""
    k: Tensor
    """[N, G, S, D]; one for each query head where gates differ."""
    v: Tensor
    decay: Tensor | None
    """[N, H, S] sums of log gates."""
    terms: Terms
    """Of the run: factors of the prior are [H, T]."""

    def heads(self, some: slice | Tensor) -> "Piece":
        """Some heads of a piece with keys for each query head."""
        q, k, v = (x[:, some] for x in self[:3])
        decay = None if self.decay is None else self.decay[:, some]
        return Piece(q, k, v, decay, self.terms.heads(some))

    def gone(self, a: int, b: int, origin: int) -> Tensor:
        """[N, H, b-a] temper · (c - c_origin) of queries a .. b-1, counted like keys."""
        assert self.decay is not None
        gone = (self.decay[..., a:b] - self.decay[..., origin, None]).to(self.wide)
        temper, offset = self.terms.temper, self.terms.seen.offset
        return gone if temper is None else gone * temper[:, a - offset : b - offset]

    def forgotten(self, lo: int, hi: int, origin: int) -> Tensor:
        """[N, H, hi-lo] c_origin - c of keys lo .. hi-1."""
        assert self.decay is not None
        return (self.decay[..., origin, None] - self.decay[..., lo:hi]).to(self.wide)

    @property
    def change(self) -> Change | None:
        """By how much c changes from a to b-1 in any head; None without gates."""
        decay, temper, offset = self.decay, self.terms.temper, self.terms.seen.offset
        if decay is None:
            return None

        def change(a: int, b: int) -> float:
            gone = (decay[..., a] - decay[..., b - 1]).amax(0)
            if temper is not None:
                gone = gone * temper[:, a - offset : b - offset].abs().amax(-1)
            return float(gone.amax())

        return change

    @property
    def wide(self) -> torch.dtype:
        return torch.promote_types(self.q.dtype, torch.float32)


class Gradients(NamedTuple):
    """Gradients of a piece; None of what it does not have."""

    q: Tensor
    k: Tensor
    v: Tensor
    table: Tensor | None
    temper: Tensor | None
    """[N, H, T], one for each sequence."""
    decay: Tensor | None


class Slopes(NamedTuple):
    """What the backward pass knows of the output of a piece."""

    grad: Tensor
    out: Tensor
    evidence: Tensor
    escaped: Tensor | None = None
    """[N, H, T] Σ_j ds_ij over all keys, which only a sink keeps from being 0."""


def widen(x: Tensor, columns: int) -> Tensor:
    """Room for some more columns, all 0."""
    return pad(x, (0, columns)) if columns else x


def column(temper: Tensor | None, scale: float, like: Tensor) -> Tensor:
    """[H or 1, T or 1] what a query holds where its keys hold c: temper / scale."""
    return like.new_full((1, 1), 1 / scale) if temper is None else temper.to(like.dtype) / scale
