"""Certified skipping: leave out keys that provably hold less than `tolerance` of the posterior.

Which keys those are says `plan`, as for skipping below rounding, with the tolerance in place of ε
and no weights. It compares with a lower bound of the evidence, the query's own key alone. For the
bound that is returned, the evidence of the keys that were kept takes its place: a row that misses m
relative to exp(ground) misses m · exp(ground - evidence). An output that misses a mass m is off by
at most m · (max v - min v).
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# (torch leaves some members untyped)

import torch
from torch import Tensor

from bayesattn.attention.kernels.strided.heads import shares
from bayesattn.attention.kernels.strided.plan import Plan, plan
from bayesattn.attention.kernels.strided.runs import attend_heads, slices
from bayesattn.attention.kernels.strided.sizes import blocks
from bayesattn.attention.terms import Terms


def certified(
    q: Tensor, k: Tensor, v: Tensor, terms: Terms, tolerance: float
) -> tuple[Tensor, Tensor]:
    """Attention as by the dense kernel but for skipped keys, and a bound on the error [B, H]."""
    assert terms.table is not None
    seen, wide = terms.seen, terms.table.dtype
    k, v = k[:, :, : seen.end], v[:, :, : seen.end]
    out, bound = q.new_zeros(q.shape), q.new_zeros(q.shape[:2], dtype=wide)
    for group in seen.groups(terms.content, terms.temper):
        own = q[group.rows], k[group.rows], v[group.rows]
        for run in group.runs:
            here = terms.at(group, run)
            queries, keys = slices(run, here.seen)
            inputs = own[0][queries], own[1][keys], own[2][keys]
            found = plan(*inputs, here, tolerance=tolerance)
            mean = torch.empty_like(inputs[0])
            evidence = mean.new_empty(mean.shape[:3], dtype=wide)
            for share in shares(here, found):
                attend_heads(*inputs, here, share, mean, evidence)
            out[group.rows, :, queries[2]] = mean
            error = _error(*inputs, here, found, evidence)
            bound[group.rows] = torch.maximum(bound[group.rows], error)
    return out, bound


def _error(
    q: Tensor, k: Tensor, v: Tensor, terms: Terms, found: Plan | None, evidence: Tensor
) -> Tensor:
    """[N, H] bound on the error of any entry."""
    repeats = q.shape[1] // k.shape[1]
    least, most = v.to(evidence.dtype).aminmax(dim=2)
    width = (most - least).amax(-1).repeat_interleave(repeats, 1)
    size = torch.maximum(most, -least).amax(-1).repeat_interleave(repeats, 1)
    longest = (torch.linalg.vector_norm(x, dim=-1, dtype=evidence.dtype) for x in (q, k))
    queries, keys = longest
    queries = queries if terms.content is None else queries * terms.content.abs()
    score = queries.amax(-1) * keys.amax(-1).repeat_interleave(repeats, 1) * abs(terms.scale)
    # what float rounding of ordinary attention may add; an allowance, not part of the proof
    rounding = torch.finfo(q.dtype).eps * (16 + 2 * score) * size
    if found is None:
        return rounding
    gained = blocks(found.ground - evidence, float("-inf")).amax(-1)
    mass = (found.missed + gained).amax(-1).exp().clamp(max=1)
    return mass * width + rounding
