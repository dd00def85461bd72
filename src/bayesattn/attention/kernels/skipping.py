"""Certified skipping: leave out keys that provably hold less than `tolerance` of the posterior.

For query i, the keys at distance r >= ρ weigh, relative to all keys,

    mass_i <= exp(|q_i| · max_j |k_j| + log Σ_{r >= ρ} exp(c_i t[r]) - evidence_i)

by Cauchy-Schwarz. To choose ρ the evidence is bounded below by the query's own key alone; for the
bound that is returned it is the evidence of the keys that were kept. An output that misses a mass m
is off by at most m · (max v - min v). Each head is cut by its own reach; one whose prior does not
decay keeps every key.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# (torch leaves some members untyped)

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

from bayesattn.attention.kernels.strided.band import Band
from bayesattn.attention.kernels.strided.forward import Parts, merge_
from bayesattn.attention.terms import Terms

_CHUNK = 64  # distances per entry of the tail bound
_ROWS = 256  # queries per block: what a local head wastes past its reach


def certified(
    q: Tensor, k: Tensor, v: Tensor, terms: Terms, tolerance: float
) -> tuple[Tensor, Tensor]:
    """Attention as by the dense kernel but for skipped keys, and a bound on the error [B, H]."""
    seen = terms.seen
    q, k, v = terms.heat(q), k[:, :, : seen.end], v[:, :, : seen.end]
    out = q.new_zeros(q.shape)
    bound = q.new_zeros(q.shape[:2], dtype=torch.promote_types(q.dtype, torch.float32))
    groups = q.shape[1] // k.shape[1]
    for group in seen.groups(terms.temper):
        batch = group.rows
        for run in group.runs:
            rows, keys = slice(run.start, run.stop), slice(run.first, seen.offset + run.stop)
            here = terms.at(group, run)
            for h in range(q.shape[1]):
                head, kv = slice(h, h + 1), slice(h // groups, h // groups + 1)
                own = (q[batch, head, rows], k[batch, kv, keys], v[batch, kv, keys])
                o, e = _one_head(*own, here.heads(head), math.log(tolerance))
                out[batch, head, rows] = o
                bound[batch, head] = torch.maximum(bound[batch, head], e)
    return out, bound


def _one_head(
    q: Tensor, k: Tensor, v: Tensor, terms: Terms, log_tolerance: float
) -> tuple[Tensor, Tensor]:
    """Output [N, 1, T, D] of one head over one run, and its error bound [N, 1]."""
    seen, temper, scale = terms.seen, terms.temper, terms.scale
    end, offset, num_queries = seen.end, seen.offset, seen.num_queries
    block = min(_ROWS, num_queries)
    assert terms.table is not None
    band = Band.of(terms.table, seen, block)
    table = terms.table[0, : band.span]
    factor = torch.ones(1, num_queries, dtype=table.dtype) if temper is None else temper
    parts = Parts(k, v, band, scale, (1, 1))

    top = table.max()
    steepest = pad(table - top, (0, -len(table) % _CHUNK), value=-math.inf).view(-1, _CHUNK).amax(1)
    reach = (q.norm(dim=-1) * abs(scale) * k.norm(dim=-1).cummax(-1).values[:, :, offset:]).to(
        table
    )
    position = torch.arange(offset, end)
    own_prior = torch.where(position < seen.exempt, 0.0, factor * table[0])
    own = (q * k[:, :, offset:]).sum(-1).to(table) * scale + own_prior
    margin = reach + factor * top

    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    mass = table.new_zeros(q.shape[0], 1)
    for a in range(offset, end, block):
        b = min(a + block, end)
        here = slice(a - offset, b - offset)
        # tail[u]: log-mass, relative to top, of all distances from chunk u on at the mildest factor
        tail = (factor[:, here].min() * steepest + math.log(_CHUNK)).flip(0).logcumsumexp(0).flip(0)
        spare = log_tolerance - (margin[:, :, here] - own[:, :, here]).max()
        small = (tail <= spare).nonzero()
        lowest = band.lowest(a)
        cut = int(small[0]) if len(small) else len(tail)
        lo = max(lowest, a + 1 - cut * _CHUNK)
        rows = (q[:, :, here].flip(2), None if temper is None else temper[:, here].flip(1), a, b)
        o, evidence = parts(*rows, lo, b)
        free = min(seen.exempt, lo)
        if lowest < free:
            o, evidence = merge_((o, evidence), parts(*rows, lowest, free))
        out[:, :, here] = o.flip(2)
        if lo > lowest:
            missed = (margin[:, :, here] + tail[cut] - evidence.flip(2)).exp()
            mass = torch.maximum(mass, missed.amax(-1))
    least, most = v.aminmax(dim=2)
    width = (most - least).amax(-1).to(table)
    size = torch.maximum(most, -least).amax(-1).to(table)
    # what float rounding of ordinary attention may add; an allowance, not part of the proof
    rounding = torch.finfo(q.dtype).eps * (16 + 2 * reach.amax(-1)) * size
    return out, mass.clamp(max=1) * width + rounding
