"""The CPU kernel: exact attention under any prior over distance, O(H·T + block) extra memory.

Two custom operators, so that torch.compile and gradient checkpointing pass through: visibility may
depend on data (padding, documents), which inside an operator is an ordinary Python loop over runs
of queries that share their first key.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# (torch leaves some members untyped)

from typing import Any

import torch
from torch import Tensor

from bayesattn.attention.kernels.dense import repeat_heads
from bayesattn.attention.kernels.strided.backward import differentiate_band
from bayesattn.attention.kernels.strided.forward import attend_band
from bayesattn.attention.visibility import Run, Visibility


def strided(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    table: Tensor,
    content: Tensor | None,
    temper: Tensor | None,
    seen: Visibility,
    scale: float,
) -> Tensor:
    """Same result as the dense kernel, on CPU tensors.

    The arguments too, but for q, which comes without its temperature `content` [B or 1, H, T]:
    multiplied block by block, it needs no memory.
    """
    args = (seen.first, seen.offset, seen.window, seen.exempt, scale)
    k, v = k[:, :, : seen.end], v[:, :, : seen.end]
    return _strided(q, k, v, table, content, temper, *args)[0]


@torch.library.custom_op("bayesattn::strided", mutates_args=(), device_types="cpu")
def _strided(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    table: Tensor,
    content: Tensor | None,
    temper: Tensor | None,
    first: Tensor | None,
    offset: int,
    window: int | None,
    exempt: int,
    scale: float,
) -> tuple[Tensor, Tensor]:
    seen = Visibility(q.shape[2], offset, first, window, exempt)
    new = q.new_empty if first is None else q.new_zeros  # rows of padding stay 0
    out, evidence = new(q.shape), new(q.shape[:3], dtype=table.dtype)
    for run in seen.runs(merge=_shared(content) and _shared(temper)):
        own, keys = _slices(run, offset)
        k_run, v_run = (_per_query_head(x[keys], q.shape[1]) for x in (k, v))
        q_run, *results = (_grouped(x[own], k_run.shape[:2]) for x in (q, out, evidence))
        factors = _rows(content, run), _rows(temper, run)
        attend_band(q_run, k_run, v_run, table, *factors, seen.span, exempt, scale, *results)
    return out, evidence


@torch.library.custom_op("bayesattn::strided_backward", mutates_args=(), device_types="cpu")
def _strided_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    evidence: Tensor,
    table: Tensor,
    content: Tensor | None,
    temper: Tensor | None,
    first: Tensor | None,
    offset: int,
    window: int | None,
    exempt: int,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    seen = Visibility(q.shape[2], offset, first, window, exempt)
    heads, wide = q.shape[1], table.dtype
    dq, dk, dv = (x.new_zeros(x.shape, dtype=wide) for x in (q, k, v))
    dtable = torch.zeros_like(table)
    dcontent, dtemper = (
        table.new_zeros(0) if x is None else torch.zeros_like(x) for x in (content, temper)
    )
    for run in seen.runs(merge=_shared(content) and _shared(temper)):
        own, keys = _slices(run, offset)
        k_run, v_run = repeat_heads(k[keys], heads), repeat_heads(v[keys], heads)
        saved = (out[own], evidence[own], table, _rows(content, run), _rows(temper, run))
        dq_run, dk_run, dv_run, dtable_run, dcontent_run, dtemper_run = differentiate_band(
            grad[own], q[own], k_run, v_run, *saved, seen.span, exempt, scale
        )
        dq[own] = dq_run
        dk[keys] += _per_key_head(dk_run, k.shape[1])
        dv[keys] += _per_key_head(dv_run, v.shape[1])
        dtable += dtable_run
        for total, part in ((dcontent, dcontent_run), (dtemper, dtemper_run)):
            if part is not None:
                total[run.batch or 0, :, run.start : run.stop] += part
    return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), dtable, dcontent, dtemper


@_strided.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, table: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return q.new_empty(q.shape), q.new_empty(q.shape[:3], dtype=table.dtype)


@_strided_backward.register_fake
def _(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    evidence: Tensor,
    table: Tensor,
    content: Tensor | None,
    temper: Tensor | None,
    *_: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    dcontent, dtemper = (
        table.new_empty(0) if x is None else torch.empty_like(x) for x in (content, temper)
    )
    dq, dk, dv = (x.new_empty(x.shape) for x in (q, k, v))
    return dq, dk, dv, torch.empty_like(table), dcontent, dtemper


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


def _shared(temper: Tensor | None) -> bool:
    """Whether all sequences of the batch have the same factors."""
    return temper is None or temper.shape[0] == 1


def _rows(temper: Tensor | None, run: Run) -> Tensor | None:
    return None if temper is None else temper[run.batch or 0, :, run.start : run.stop]


def _slices(run: Run, offset: int) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Where the queries and the keys of a run lie in [B, H, T, D]."""
    batch = slice(None) if run.batch is None else slice(run.batch, run.batch + 1)
    heads = slice(None)
    queries, keys = slice(run.start, run.stop), slice(run.first, offset + run.stop)
    return (batch, heads, queries), (batch, heads, keys)


def _per_query_head(x: Tensor, num_heads: int) -> Tensor:
    """[B, G, S, D] with a head per query head; for one sequence as a view [G, H/G, S, D]."""
    batch, groups = x.shape[:2]
    if groups == num_heads or batch > 1:
        return repeat_heads(x, num_heads)
    return x[0][:, None].expand(-1, num_heads // groups, -1, -1)


def _grouped(x: Tensor, lead: torch.Size) -> Tensor:
    """[B, H, ...] or, for one sequence, [G, H/G, ...]: a view, since it may be written to."""
    return x if x.shape[:2] == lead else x[0].unflatten(0, lead)


def _per_key_head(dx: Tensor, groups: int) -> Tensor:
    heads = dx.shape[1]
    return dx if heads == groups else dx.unflatten(1, (groups, heads // groups)).sum(2)
