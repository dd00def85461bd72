"""The definition: every score written out. Quadratic memory, any dtype, differentiable.

score_ij = scale · q_i·k_j + c_i · t[i - j]      (log-prior table t, temperature c, 1 without SSMax)
out_i    = Σ_j softmax_j(score_ij) v_j           over the visible keys j
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


def scores(
    q: Tensor,
    k: Tensor,
    table: Tensor | None,
    temper: Tensor | None,
    seen: Visibility,
    scale: float,
) -> tuple[Tensor, Tensor | None]:
    """Content scores [B, H, T, end] and log-prior (None if uniform), before masking."""
    k = repeat_heads(k[:, :, : seen.end], q.shape[1])
    content = torch.matmul(q * scale, k.transpose(-1, -2))
    if table is None:
        return content, None
    prior = bias(table, seen)
    return content, prior if temper is None else prior * temper[..., None]


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
    content, prior = scores(q, k, table, temper, seen, scale)
    visible = seen.mask(q.device)
    if seen.first is None:
        # Every query sees itself, and all sequences alike: the mask rides along with the prior,
        # which is smaller than the scores by the batch.
        wide = torch.promote_types(content.dtype, torch.float32)
        mask = visible.new_zeros(visible.shape, dtype=wide).masked_fill(~visible, float("-inf"))
        weights = (content + (mask if prior is None else prior + mask)).softmax(dim=-1)
    else:
        weights = softmax(content if prior is None else content + prior, visible)
    values = repeat_heads(v[:, :, : seen.end], q.shape[1])
    return torch.matmul(weights.to(v.dtype), values)
