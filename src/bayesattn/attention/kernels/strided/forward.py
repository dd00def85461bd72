"""Forward pass of the strided kernel: torch's CPU flash attention, a block of queries at a time."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# (torch leaves some members untyped)

import torch
from torch import Tensor

from bayesattn.attention.kernels.strided.band import Band

_TILE_ELEMENTS = 1 << 19  # of a bias that has to be written out: a share of the cache


def flash(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Attention with an additive bias [.., T, S], and the log-sum-exp of its scores."""
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        q, k, v, 0.0, False, attn_mask=bias, scale=scale
    )


def block_rows(end: int) -> int:
    """Queries per block: small ones waste less past the diagonal, large ones reuse keys better."""
    return 128 if end <= 1024 else 256 if end <= 8192 else 1024


def attend_band(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    table: Tensor,
    temper: Tensor | None,
    span: int,
    exempt: int,
    scale: float,
    out: Tensor,
    evidence: Tensor,
) -> None:
    """Posterior mean and log-evidence of the last T positions of S keys.

    Args:
        q: [N, H, T, D], or [G, H/G, T, D] for the grouped heads of one sequence.
        k: [N, H, S, D] or [G, H/G, S, D].
        v: like k.
        table: [H, >= min(span, S)] log-prior by distance.
        temper: [H, T] factor of the prior in each row.
        span: number of most recent keys each query sees.
        exempt: leading keys whose log-prior is 0.
        scale: factor of the content.
        out: where the posterior mean goes, shaped like q.
        evidence: where the log-evidence goes, [N, H, T] or [G, H/G, T].
    """
    end, num_queries = k.shape[2], q.shape[2]
    block = min(block_rows(end), num_queries)
    plain = temper is None and exempt == 0
    heads = table.shape[0]
    lead = (1, heads) if q.shape[1] == heads else (q.shape[0], q.shape[1])
    if num_queries == 1:
        lo, bias = _row(table, temper, end, span, exempt)
        o, e = flash(q, k[:, :, lo:], v[:, :, lo:], bias.unflatten(0, lead), scale)
        out.copy_(o)
        evidence.copy_(e)
        return
    if not plain and heads > 1 and heads * block * min(end, tile_keys(block)) > 2 * _TILE_ELEMENTS:
        for h in range(heads):
            own = (_head(x, h, heads) for x in (q, k, v, out, evidence))
            q_h, k_h, v_h, out_h, evidence_h = own
            table_h, temper_h = table[h : h + 1], None if temper is None else temper[h : h + 1]
            rest = (span, exempt, scale, out_h, evidence_h)
            attend_band(q_h, k_h, v_h, table_h, temper_h, *rest)
        return
    band = Band.of(table, end, span, exempt, block)
    work = table.new_empty(0) if plain else workspace(band, block)
    for a in range(end - num_queries, end, block):
        b = min(a + block, end)
        rows = slice(a - end + num_queries, b - end + num_queries)
        lo = band.lowest(a)
        flipped = q[:, :, rows].flip(2)
        if plain:
            bias = band.view(a, b, lo, b).unflatten(0, lead)
            o, e = flash(flipped, k[:, :, lo:b], v[:, :, lo:b], bias, scale)
        else:
            factor = None if temper is None else temper[:, rows].flip(1)
            o, e = by_tiles(flipped, k, v, band, factor, a, b, (lo, b), scale, work, lead)
        out[:, :, rows], evidence[:, :, rows] = o.flip(2), e.flip(2)


def by_tiles(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    band: Band,
    temper: Tensor | None,
    a: int,
    b: int,
    keys: tuple[int, int],
    scale: float,
    work: Tensor,
    lead: tuple[int, int],
) -> tuple[Tensor, Tensor]:
    """Queries b-1 .. a against a range of keys, the bias written out tile by tile and merged."""
    lowest, highest = keys
    step = tile_keys(b - a)
    merged: tuple[Tensor, Tensor] | None = None
    for hi in range(highest, lowest, -step):
        lo = max(lowest, hi - step)
        bias = band.tempered(temper, a, b, lo, hi, work).unflatten(0, lead)
        part = flash(q, k[:, :, lo:hi], v[:, :, lo:hi], bias, scale)
        # rows whose window begins above this tile see none of it; flash reports 0 for them
        part[1][:, :, : max(0, b - hi - band.span + 1)] = float("-inf")
        merged = part if merged is None else merge(merged, part)
    assert merged is not None, "a query sees at least itself"
    return merged


def merge(x: tuple[Tensor, Tensor], y: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Posterior means and log-evidences over two disjoint sets of keys, as one over both."""
    evidence = torch.logaddexp(x[1], y[1])
    share = (y[1] - evidence).exp()[..., None].to(x[0].dtype)
    return torch.lerp(x[0], y[0], share), evidence


def _row(
    table: Tensor, temper: Tensor | None, end: int, span: int, exempt: int
) -> tuple[int, Tensor]:
    """First key that the last query sees, and the log-prior [H, 1, keys] from there on."""
    lo = max(0, end - span)
    bias = table[:, : end - lo].flip(1)
    bias = bias if temper is None else bias.mul_(temper)
    bias[:, : max(0, exempt - lo)] = 0.0
    return lo, bias[:, None]


def tile_keys(rows: int) -> int:
    """Keys per tile of a bias that is written out for so many queries of one head."""
    return max(512, _TILE_ELEMENTS // rows)


def workspace(band: Band, rows: int) -> Tensor:
    """Room for one tile of `by_tiles`, of so many queries or fewer."""
    # fewer queries may mean more keys
    widest = max(_TILE_ELEMENTS, rows * 512) + rows * rows
    return band.reversed.new_empty(band.reversed.shape[0] * min(widest, rows * (band.end + rows)))


def _head(x: Tensor, head: int, heads: int) -> Tensor:
    """One head of [N, H, ...] or of [G, H/G, ...], its dimension kept."""
    if x.shape[1] == heads:
        return x[:, head : head + 1]
    group, within = divmod(head, x.shape[1])
    return x[group : group + 1, within : within + 1]
