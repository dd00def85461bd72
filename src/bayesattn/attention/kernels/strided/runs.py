"""Attention piece by piece, each of which is a plain causal band.

Sequences that are cut alike belong together, runs of queries that share their first key, and heads
that look alike.
"""

import torch
from torch import Tensor

from bayesattn.attention.kernels.dense import repeat_heads
from bayesattn.attention.kernels.strided.backward import differentiate_band
from bayesattn.attention.kernels.strided.band import split_first
from bayesattn.attention.kernels.strided.flat import attend_flat
from bayesattn.attention.kernels.strided.forward import attend_band
from bayesattn.attention.kernels.strided.heads import Heads, Keys, Share, shares
from bayesattn.attention.kernels.strided.plan import plan
from bayesattn.attention.terms import Terms
from bayesattn.attention.visibility import Group, Run, Visibility

_WORTH = 768  # keys from which on a plan saves more than it costs
_FEW = 16  # queries below which it would read as much as attention itself


def attend_runs(
    q: Tensor, k: Tensor, v: Tensor, terms: Terms, *, skip: bool
) -> tuple[Tensor, Tensor]:
    """Posterior mean [B, H, T, D] and log-evidence [B, H, T]."""
    assert terms.table is not None
    new = q.new_empty if terms.seen.first is None else q.new_zeros  # rows of padding stay 0
    out, evidence = new(q.shape), new(q.shape[:3], dtype=terms.table.dtype)
    for group in terms.seen.groups(terms.content, terms.temper):
        rows = group.rows
        own, results = (q[rows], k[rows], v[rows]), (out[rows], evidence[rows])
        for run in group.runs:
            here = terms.at(group, run)
            queries, keys = slices(run, here.seen)
            inputs = own[0][queries], own[1][keys], own[2][keys]
            for share in _shares(*inputs, here, skip=skip):
                attend_heads(*inputs, here, share, results[0][queries], results[1][queries])
        if not isinstance(rows, slice):  # what was written to is a copy
            out[rows], evidence[rows] = results
    return out, evidence


def attend_heads(
    q: Tensor, k: Tensor, v: Tensor, terms: Terms, share: Share, out: Tensor, evidence: Tensor
) -> None:
    """Some heads of a run; keys [N, G, S, D], everything else of all H heads."""
    heads = share.heads
    k, v = (_of_query_heads(x, heads, q.shape[1]) for x in (k, v))
    results = out[:, heads], evidence[:, heads]
    q, *places = (_grouped(x, k.shape[:2]) for x in (q[:, heads], *results))
    if share.flat:
        attend_flat(q, k, v, terms.heads(heads), places[0], places[1])
    else:
        attend_band(q, k, v, terms.heads(heads), share.keys, places[0], places[1])
    if not isinstance(heads, slice):
        out[:, heads], evidence[:, heads] = results


def differentiate_runs(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    evidence: Tensor,
    terms: Terms,
    *,
    skip: bool,
    wanted: tuple[bool, bool],
) -> tuple[Tensor, ...]:
    """Gradients of q, k, v, table, content and temper; `wanted` says of table and of temper."""
    assert terms.table is not None
    table, num_heads = terms.table, q.shape[1]
    dq, dk, dv = (x.new_zeros(x.shape, dtype=table.dtype) for x in (q, k, v))
    dtable, *dfactors = (table.new_zeros(0 if x is None else x.shape) for x in terms[:3])
    for group in terms.seen.groups(terms.content, terms.temper):
        rows = group.rows
        per_query = [x[rows] for x in (grad, q, out, evidence)]
        own, sums = (k[rows], v[rows]), (dq[rows], dk[rows], dv[rows])
        for run in group.runs:
            here = terms.at(group, run)
            queries, keys = slices(run, here.seen)
            k_run, v_run = (x[keys] for x in own)
            grad_run, q_run, out_run, evidence_run = (x[queries] for x in per_query)
            for share in _shares(q_run, k_run, v_run, here, evidence_run, skip=skip):
                heads = share.heads
                mine = here.heads(heads)
                q_h, grad_h, out_h = (x[:, heads] for x in (q_run, grad_run, out_run))
                k_h, v_h = (_copied_heads(x, heads, num_heads) for x in (k_run, v_run))
                known = grad_h, q_h, k_h, v_h, out_h, evidence_run[:, heads]
                found = differentiate_band(*known, mine, share, wanted=wanted)
                sums[0][queries][:, heads] = found[0]
                for total, part in zip(sums[1:], found[1:3], strict=True):
                    _add_heads(total[keys], part, heads, num_heads)
                dtable[heads] += found[3]
                for total, factor in zip(dfactors, found[4:], strict=True):
                    if factor is not None:
                        _add(total, group, run, heads, factor)
        if not isinstance(rows, slice):
            dq[rows], dk[rows], dv[rows] = sums
    return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), dtable, *dfactors


def _shares(
    q: Tensor, k: Tensor, v: Tensor, terms: Terms, evidence: Tensor | None = None, *, skip: bool
) -> list[Share]:
    """The heads of a run in groups, if that is worth it."""
    seen = terms.seen
    if not skip or seen.num_queries < _FEW or seen.end < _WORTH:
        return [Share(slice(0, q.shape[1]), Keys(seen), flat=False)]
    return shares(terms, plan(q, k, v, terms, evidence))


def slices(run: Run, seen: Visibility) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Where the queries and the keys of a run, which sees `seen`, lie in [B, H, T, D]."""
    every = slice(None)
    queries, keys = slice(run.start, run.stop), slice(run.first, run.first + seen.end)
    return (every, every, queries), (every, every, keys)


def _of_query_heads(x: Tensor, heads: Heads, num_heads: int) -> Tensor:
    """[N, G, S, D] with a head for each of some query heads; as a view where that is possible."""
    batch, groups = x.shape[:2]
    everyone = isinstance(heads, slice) and heads == slice(0, num_heads)
    if everyone and batch == 1 and groups < num_heads:
        return x[0][:, None].expand(-1, num_heads // groups, -1, -1)
    return _copied_heads(x, heads, num_heads)


def _copied_heads(x: Tensor, heads: Heads, num_heads: int) -> Tensor:
    groups = x.shape[1]
    if groups == num_heads:
        return x[:, heads]
    if isinstance(heads, slice) and heads == slice(0, num_heads):
        return repeat_heads(x, num_heads)
    return x[:, _key_heads(heads, num_heads, groups)]


def _add_heads(total: Tensor, part: Tensor, heads: Heads, num_heads: int) -> None:
    """Add [N, h, S, D] of some query heads to their key heads [N, G, S, D]."""
    if total.shape[1] == num_heads:
        total[:, heads] += part
    else:
        total.index_add_(1, _key_heads(heads, num_heads, total.shape[1]), part)


def _key_heads(heads: Heads, num_heads: int, groups: int) -> Tensor:
    return torch.arange(num_heads)[heads] // (num_heads // groups)


def _grouped(x: Tensor, lead: tuple[int, ...]) -> Tensor:
    """[B, H, ...] or, for one sequence, [G, H/G, ...]: a view, since it may be written to."""
    return x if x.shape[:2] == lead else split_first(x[0], lead)


def _add(total: Tensor, group: Group, run: Run, heads: Heads, part: Tensor) -> None:
    """Add gradients [n, h, t] of a group's factors, which may be one for the whole batch."""
    queries = slice(run.start, run.stop)
    if total.shape[0] == 1:
        total[0, heads, queries] += part.sum(0)
    elif isinstance(group.rows, slice):
        total[group.rows, heads, queries] += part
    else:
        here = total[group.rows]
        here[:, heads, queries] += part
        total[group.rows] = here
