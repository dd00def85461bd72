"""The definition: every score written out. Quadratic memory, any dtype, differentiable.

score_ij = scale · q_i·k_j + c_i · t[i - j]      (log-prior table t, temperature c, 1 without SSMax)
out_i    = Σ_j softmax_j(score_ij) v_j           over the visible keys j

`weigh` takes any log-prior and any mask; `posterior` those of a table and a `Visibility`, for all
queries or some rows of them. Whatever else states attention calls one of the two.
"""

import torch
from torch import Tensor

from bayesattn.attention.visibility import Visibility


def repeat_heads(x: Tensor, num_heads: int) -> Tensor:
    """[B, G, S, D] to [B, H, S, D]: each key/value head serves H/G query heads."""
    return x if x.shape[1] == num_heads else x.repeat_interleave(num_heads // x.shape[1], dim=1)


def bias(table: Tensor, seen: Visibility) -> Tensor:
    """[B or 1, H, T, end] log-prior of every pair; arbitrary (not -inf) where invisible."""
    query = seen.positions(table.device)[:, None]
    key = torch.arange(seen.end, device=table.device)[None, :]
    dense = table[:, (query - key).clamp(0, table.shape[1] - 1)][None]
    return dense.masked_fill(seen.exempted(table.device), 0.0) if seen.exempt else dense


def softmax(scores: Tensor, visible: Tensor) -> Tensor:
    """Softmax over the visible keys, 0 elsewhere; rows that see nothing are all 0."""
    wide = torch.promote_types(scores.dtype, torch.float32)
    scores = scores.to(wide).masked_fill(~visible, float("-inf"))
    blind = ~visible.any(dim=-1, keepdim=True)
    # softmax of an all -inf row is NaN, and so is its gradient even if masked afterwards
    return scores.masked_fill(blind, 0.0).softmax(dim=-1).masked_fill(blind, 0.0)


def heat(q: Tensor, factor: Tensor | None) -> Tensor:
    """Queries [B, H, T, D] with the temperature [B or 1, H, T] of their content multiplied in."""
    return q if factor is None else (q * factor[..., None]).to(q.dtype)


def weigh(
    q: Tensor,
    k: Tensor,
    log_prior: Tensor | None,
    visible: Tensor,
    scale: float,
    *,
    all_see: bool = False,
) -> Tensor:
    """[B, H, R, S] posterior over keys [B, G, S, D] of any rows of queries [B, H, R, D].

    Args:
        q: the queries, heated.
        k: the keys.
        log_prior: [B or 1, H or 1, R, S], finite where visible; None if uniform.
        visible: [B or 1, 1, R, S] any mask.
        scale: factor of q·k.
        all_see: every row sees a key, and all sequences the same ones, which saves memory.
    """
    content = torch.matmul(q * scale, repeat_heads(k, q.shape[1]).transpose(-1, -2))
    if not all_see:
        return softmax(content if log_prior is None else content + log_prior, visible)
    # The mask rides along with the prior, which is smaller than the scores by the batch.
    wide = torch.promote_types(content.dtype, torch.float32)
    mask = visible.new_zeros(visible.shape, dtype=wide).masked_fill(~visible, float("-inf"))
    return (content + (mask if log_prior is None else log_prior + mask)).softmax(dim=-1)


def posterior(
    q: Tensor,
    k: Tensor,
    table: Tensor | None,
    temper: Tensor | None,
    seen: Visibility,
    scale: float,
    rows: Tensor | None = None,
) -> Tensor:
    """[B, H, T, end] posterior; with `rows` [R] that of these queries, q [B, H, R, D], only."""
    log_prior, visible = prior_and_mask(table, temper, seen, q.device, rows)
    all_see = seen.first is None
    return weigh(q, k[:, :, : seen.end], log_prior, visible, scale, all_see=all_see)


def prior_and_mask(
    table: Tensor | None,
    temper: Tensor | None,
    seen: Visibility,
    device: torch.device,
    rows: Tensor | None = None,
) -> tuple[Tensor | None, Tensor]:
    """Log-prior (None if uniform) after its temperature, and what is visible; of some rows."""
    log_prior = None if table is None else bias(table, seen)
    if log_prior is not None and temper is not None:
        log_prior = log_prior * temper[..., None]
    visible = seen.mask(device)
    if rows is not None:
        log_prior = None if log_prior is None else log_prior.index_select(2, rows)
        visible = visible.index_select(2, rows)
    return log_prior, visible


def dense(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    table: Tensor | None,
    temper: Tensor | None,
    seen: Visibility,
    scale: float,
) -> Tensor:
    """Attention by the definition above; see `attend` for the arguments."""
    weights = posterior(q, k, table, temper, seen, scale)
    return torch.matmul(weights.to(v.dtype), repeat_heads(v[:, :, : seen.end], q.shape[1]))
