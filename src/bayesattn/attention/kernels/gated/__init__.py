"""The CPU kernel for forget gates and a sink: exact, O(T) memory, torch's flash attention inside.

    score_ij = scale · q_i·k_j + temper_i · (table[i - j] + c_i - c_j)          c = decay

The gates are a column in the strided kernel (`band`). Forward, without a prior over distance and
without a window, a causal triangle is cut into parts (`parts`) that torch's own kernel computes
(`triangle`). One query against a cache is a row (`row`). Two custom operators, like those of
the strided kernel and for the same reasons.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# (torch leaves what registers an operator untyped)

from typing import Any

import torch
from torch import Tensor

from bayesattn.attention.kernels.dense import repeat_heads, sum_heads
from bayesattn.attention.kernels.gated.band import attend_tilted, differentiate_tilted
from bayesattn.attention.kernels.gated.piece import Piece, Slopes
from bayesattn.attention.kernels.gated.row import attend_row
from bayesattn.attention.kernels.gated.triangle import attend_triangle
from bayesattn.attention.terms import Terms
from bayesattn.attention.visibility import Group, Run, Visibility
from bayesattn.priors.sink import with_sink

_TERMS = (
    "Tensor? table, Tensor? temper, Tensor? decay, Tensor? sink, Tensor? first, "
    "SymInt offset, SymInt? window, SymInt exempt, float scale, bool skip"
)
"""`Terms` as an operator takes them, but for the content's temperature, which queries carry."""


def gated(q: Tensor, k: Tensor, v: Tensor, terms: Terms, *, skip: bool = True) -> Tensor:
    """Same arguments and result as the dense kernel, on CPU tensors, without a score_mod.

    With `skip`, keys that gates made lighter than rounding are left out: see `reach`.
    """
    seen, wide = terms.seen, torch.promote_types(q.dtype, torch.float32)
    inputs = (terms.heat(q), k[:, :, : seen.end], v[:, :, : seen.end])
    priors = (terms.table, terms.temper, terms.decay, terms.sink)
    grad = torch.is_grad_enabled() and any(_learns(x) for x in (*inputs, *priors))
    if seen.num_queries == 1 and seen.first is None and not grad:
        mean = attend_row(Piece(*inputs, terms.decay, terms.at(*seen.only())))
        return mean[0] if terms.sink is None else with_sink(*mean, terms.sink)[0]
    place = (seen.first, seen.offset, seen.window, seen.exempt)
    wide_inputs = (x.to(wide) for x in inputs)
    return _gated(*wide_inputs, *priors, *place, terms.scale, skip)[0].to(q.dtype)


def _learns(x: Tensor | None) -> bool:
    return x is not None and x.requires_grad


def rounding(q: Tensor, k: Tensor, v: Tensor, terms: Terms) -> Tensor:
    """[B, H] allowance for the rounding of float attention in which no key is left out."""
    largest = repeat_heads(torch.stack([x.norm(dim=-1).amax(-1) for x in (k, v)], -1), q.shape[1])
    reach = terms.heat(q).norm(dim=-1).amax(-1) * largest[..., 0] * abs(terms.scale)
    return torch.finfo(q.dtype).eps * (16 + 2 * reach) * largest[..., 1]


def _terms(q: Tensor, flat: tuple[Any, ...]) -> Terms:
    table, temper, decay, sink, first, offset, window, exempt, scale, _ = flat
    seen = Visibility(q.shape[2], offset, first, window, exempt)
    return Terms(table, None, temper, seen, scale, decay, sink)


def _piece(q: Tensor, k: Tensor, v: Tensor, terms: Terms, group: Group, run: Run) -> Piece:
    here = terms.at(group, run)
    rows, keys = slice(run.start, run.stop), slice(run.first, run.first + here.seen.end)
    decay = None if terms.decay is None else terms.decay[group.rows][..., keys]
    own = (q[group.rows][:, :, rows], k[group.rows][:, :, keys], v[group.rows][:, :, keys])
    return Piece(*own, decay, here)


def _by_distance(terms: Terms) -> bool:
    window = terms.seen.window
    return terms.table is not None or (window is not None and window < terms.seen.end)


@torch.library.custom_op(
    "bayesattn::gated",
    mutates_args=(),
    device_types="cpu",
    schema=f"(Tensor q, Tensor k, Tensor v, {_TERMS}) -> (Tensor, Tensor)",
)
def _gated(q: Tensor, k: Tensor, v: Tensor, *flat: Any) -> tuple[Tensor, Tensor]:
    """Posterior mean and log-evidence, the sink in both."""
    terms = _terms(q, flat)
    out, evidence = q.new_zeros(q.shape), q.new_zeros(q.shape[:3])  # rows of padding stay 0
    for group in terms.seen.groups(terms.temper):
        for run in group.runs:
            piece = _piece(q, k, v, terms, group, run)
            if run.stop - run.start == 1:
                mean = attend_row(piece)
            else:
                piece = _per_query_head(piece)
                tilted = _by_distance(piece.terms)
                mean = attend_tilted(piece) if tilted else attend_triangle(piece, skip=flat[-1])
            if terms.sink is not None:
                mean = with_sink(*mean, terms.sink)
            rows = slice(run.start, run.stop)
            out[group.rows, :, rows], evidence[group.rows, :, rows] = mean
    return out, evidence


@torch.library.custom_op(
    "bayesattn::gated_backward",
    mutates_args=(),
    device_types="cpu",
    schema=(
        f"(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor out, Tensor evidence, {_TERMS}) "
        "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
    ),
)
def _gated_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, evidence: Tensor, *flat: Any
) -> tuple[Tensor, ...]:
    """Gradients of q, k, v, table, temper, decay and sink; empty for what is None."""
    terms = _terms(q, flat)
    dq, dk, dv = (torch.zeros_like(x) for x in (q, k, v))
    zeros = (q.new_zeros(0) if x is None else torch.zeros_like(x) for x in flat[:4])
    dtable, dtemper, ddecay, dsink = zeros
    for group in terms.seen.groups(terms.temper):
        for run in group.runs:
            piece = _per_query_head(_piece(q, k, v, terms, group, run))
            rows, keys = slice(run.start, run.stop), slice(run.first, run.first + piece.k.shape[2])
            slopes = Slopes(*(x[group.rows][:, :, rows] for x in (grad, out, evidence)))
            if terms.sink is not None:
                escaped = (terms.sink[:, None] - slopes.evidence).exp()
                escaped = escaped * (slopes.grad * slopes.out).sum(-1)
                dsink -= escaped.sum((0, 2))
                slopes = slopes._replace(escaped=escaped)
            found = differentiate_tilted(piece, slopes, skip=flat[-1])
            dq[group.rows, :, rows] += found.q
            dk[group.rows, :, keys] += sum_heads(found.k, k.shape[1])
            dv[group.rows, :, keys] += sum_heads(found.v, k.shape[1])
            if found.table is not None:
                dtable += found.table
            if found.decay is not None:
                ddecay[group.rows, :, keys] += found.decay
            if found.temper is not None and len(dtemper) == 1:
                dtemper[0, :, rows] += found.temper.sum(0)
            elif found.temper is not None:
                dtemper[group.rows, :, rows] += found.temper
    return dq, dk, dv, dtable, dtemper, ddecay, dsink


@_gated.register_fake
def _(q: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return q.new_empty(q.shape), q.new_empty(q.shape[:3])


@_gated_backward.register_fake
def _(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *flat: Any) -> tuple[Tensor, ...]:
    priors = (q.new_empty(0) if x is None else x.new_empty(x.shape) for x in flat[2:6])
    return *(x.new_empty(x.shape) for x in (q, k, v)), *priors


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, table, temper, decay, sink, first, *ctx.rest = inputs
    ctx.save_for_backward(q, k, v, *output, table, temper, decay, sink, first)


def _differentiate(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors  # gradient checkpointing lets us read it once
    found = _gated_backward(grad, *saved, *ctx.rest)
    priors = (None if x is None else dx for x, dx in zip(saved[5:9], found[3:], strict=True))
    return *found[:3], *priors, None, None, None, None, None, None


_gated.register_autograd(_differentiate, setup_context=_save)


def _per_query_head(piece: Piece) -> Piece:
    k, v = (repeat_heads(x, piece.q.shape[1]) for x in (piece.k, piece.v))
    return piece._replace(k=k, v=v)
