"""The CPU kernel: exact attention under any prior over distance, O(H·T + block) extra memory.

Two custom operators, so that torch.compile and gradient checkpointing pass through: visibility may
depend on data (padding, documents), which inside an operator is an ordinary Python loop over groups
of sequences that are cut alike, and over their runs of queries that share their first key.
"""

# pyright: reportUnknownMemberType=false
# (torch leaves what registers an operator untyped)

from typing import Any

import torch
from torch import Tensor

from bayesattn.attention.kernels.dense import repeat_heads
from bayesattn.attention.kernels.strided.backward import differentiate_band
from bayesattn.attention.kernels.strided.band import split_first
from bayesattn.attention.kernels.strided.forward import attend_band
from bayesattn.attention.terms import Terms
from bayesattn.attention.visibility import Group, Run, Visibility

_TERMS = (
    "Tensor table, Tensor? content, Tensor? temper, Tensor? first, "
    "SymInt offset, SymInt? window, SymInt exempt, float scale"
)
"""`Terms` as an operator takes them: tensors and numbers."""


def strided(q: Tensor, k: Tensor, v: Tensor, terms: Terms) -> Tensor:
    """Same arguments and result as the dense kernel, on CPU tensors and with a table."""
    seen = terms.seen
    place = (seen.first, seen.offset, seen.window, seen.exempt)
    k, v = k[:, :, : seen.end], v[:, :, : seen.end]
    return _strided(q, k, v, terms.table, terms.content, terms.temper, *place, terms.scale)[0]


def _terms(q: Tensor, flat: tuple[Any, ...]) -> Terms:
    table, content, temper, first, offset, window, exempt, scale = flat
    seen = Visibility(q.shape[2], offset, first, window, exempt)
    return Terms(table, content, temper, seen, scale)


@torch.library.custom_op(
    "bayesattn::strided",
    mutates_args=(),
    device_types="cpu",
    schema=f"(Tensor q, Tensor k, Tensor v, {_TERMS}) -> (Tensor, Tensor)",
)
def _strided(q: Tensor, k: Tensor, v: Tensor, *flat: Any) -> tuple[Tensor, Tensor]:
    """Posterior mean and log-evidence."""
    terms = _terms(q, flat)
    new = q.new_empty if terms.seen.first is None else q.new_zeros  # rows of padding stay 0
    out, evidence = new(q.shape), new(q.shape[:3], dtype=flat[0].dtype)
    for group in terms.seen.groups(terms.content, terms.temper):
        rows = group.rows
        own, results = (q[rows], k[rows], v[rows]), (out[rows], evidence[rows])
        for run in group.runs:
            here = terms.at(group, run)
            queries, keys = _slices(run, here.seen)
            k_run, v_run = (_per_query_head(x[keys], q.shape[1]) for x in own[1:])
            q_run, out_run, evidence_run = (
                _grouped(x[queries], k_run.shape[:2]) for x in (own[0], *results)
            )
            attend_band(q_run, k_run, v_run, here, out_run, evidence_run)
        if not isinstance(rows, slice):  # what was written to is a copy
            out[rows], evidence[rows] = results
    return out, evidence


@torch.library.custom_op(
    "bayesattn::strided_backward",
    mutates_args=(),
    device_types="cpu",
    schema=(
        f"(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor out, Tensor evidence, {_TERMS}) "
        "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
    ),
)
def _strided_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, evidence: Tensor, *flat: Any
) -> tuple[Tensor, ...]:
    """Gradients of q, k, v, table, content and temper; empty for factors that are None."""
    terms, table = _terms(q, flat), flat[0]
    dq, dk, dv = (x.new_zeros(x.shape, dtype=table.dtype) for x in (q, k, v))
    dtable, *dfactors = (table.new_zeros(0 if x is None else x.shape) for x in terms[:3])
    for group in terms.seen.groups(terms.content, terms.temper):
        rows = group.rows
        per_query = [x[rows] for x in (grad, q, out, evidence)]
        own, sums = (k[rows], v[rows]), (dq[rows], dk[rows], dv[rows])
        for run in group.runs:
            here = terms.at(group, run)
            queries, keys = _slices(run, here.seen)
            k_run, v_run = (repeat_heads(x[keys], q.shape[1]) for x in own)
            grad_run, q_run, out_run, evidence_run = (x[queries] for x in per_query)
            found = differentiate_band(grad_run, q_run, k_run, v_run, out_run, evidence_run, here)
            sums[0][queries] = found[0]
            for total, part in zip(sums[1:], found[1:3], strict=True):
                total[keys] += _per_key_head(part, k.shape[1])
            dtable += found[3]
            for total, factor in zip(dfactors, found[4:], strict=True):
                if factor is not None:
                    _add(total, group, run, factor)
        if not isinstance(rows, slice):
            dq[rows], dk[rows], dv[rows] = sums
    return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), dtable, *dfactors


@_strided.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, table: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return q.new_empty(q.shape), q.new_empty(q.shape[:3], dtype=table.dtype)


@_strided_backward.register_fake
def _(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *flat: Any) -> tuple[Tensor, ...]:
    table, content, temper = flat[2:5]
    wide = (table.new_empty(0 if x is None else x.shape) for x in (table, content, temper))
    return *(x.new_empty(x.shape) for x in (q, k, v)), *wide


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, table, content, temper, first, *ctx.rest = inputs
    ctx.save_for_backward(q, k, v, *output, table, content, temper, first)


def _differentiate(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors  # gradient checkpointing lets us read it once
    *grads, dcontent, dtemper = _strided_backward(grad, *saved, *ctx.rest)
    content, temper = saved[6:8]
    grads += [None if content is None else dcontent, None if temper is None else dtemper]
    return *grads, None, None, None, None, None


_strided.register_autograd(_differentiate, setup_context=_save)


def _add(total: Tensor, group: Group, run: Run, part: Tensor) -> None:
    """Add gradients [n, H, t] of a group's factors, which may be one for the whole batch."""
    queries = slice(run.start, run.stop)
    if total.shape[0] == 1:
        total[0, :, queries] += part.sum(0)
    else:
        total[group.rows, :, queries] += part


def _slices(run: Run, seen: Visibility) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Where the queries and the keys of a run, which sees `seen`, lie in [B, H, T, D]."""
    every = slice(None)
    queries, keys = slice(run.start, run.stop), slice(run.first, run.first + seen.end)
    return (every, every, queries), (every, every, keys)


def _per_query_head(x: Tensor, num_heads: int) -> Tensor:
    """[B, G, S, D] with a head per query head; for one sequence as a view [G, H/G, S, D]."""
    batch, groups = x.shape[:2]
    if groups == num_heads or batch > 1:
        return repeat_heads(x, num_heads)
    return x[0][:, None].expand(-1, num_heads // groups, -1, -1)


def _grouped(x: Tensor, lead: tuple[int, ...]) -> Tensor:
    """[B, H, ...] or, for one sequence, [G, H/G, ...]: a view, since it may be written to."""
    return x if x.shape[:2] == lead else split_first(x[0], lead)


def _per_key_head(dx: Tensor, groups: int) -> Tensor:
    batch, heads, *rest = dx.shape
    return dx if heads == groups else dx.view(batch, groups, -1, *rest).sum(2)
