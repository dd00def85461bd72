"""The definition: every score written out. Quadratic memory, any dtype, differentiable.

score_ij = scale · content_i · q_i·k_j + temper_i · table[i - j]
out_i    = Σ_j softmax_j(score_ij) v_j                     over the keys j that i sees

`weigh` takes any log-prior and any mask; `posterior` those of `Terms`, for all queries or some rows
of them. Whatever else states attention calls one of the two. Theorem 1 of BAM says that attention
factors into likelihood · prior · evidence, row by row:

    softmax(f + g) = softmax(f) · softmax(g) · Z,      Z = 1 / Σ_j softmax(f)_j softmax(g)_j

for content scores f and log-prior g, both after the temperature if there is one.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from bayesattn.attention.terms import Terms
from bayesattn.attention.visibility import Visibility


def dense(q: Tensor, k: Tensor, v: Tensor, terms: Terms) -> Tensor:
    """Output [B, H, T, D] for q [B, H, T, D], k and v [B, G, S, D]."""
    return _mean(posterior(q, k, terms), v[:, :, : terms.seen.end])


def posterior(q: Tensor, k: Tensor, terms: Terms, rows: Tensor | None = None) -> Tensor:
    """[B, H, T, end] posterior; with `rows` [R] that of these queries, q [B, H, R, D], only."""
    log_prior, visible = prior_and_mask(terms, q.device, rows)
    keys, all_see = k[:, :, : terms.seen.end], terms.seen.first is None
    return weigh(terms.heat(q, rows), keys, log_prior, visible, terms.scale, all_see=all_see)


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
        q: the queries, times their temperature.
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


def softmax(scores: Tensor, visible: Tensor) -> Tensor:
    """Softmax over the visible keys, 0 elsewhere; rows that see nothing are all 0."""
    wide = torch.promote_types(scores.dtype, torch.float32)
    scores = scores.to(wide).masked_fill(~visible, float("-inf"))
    blind = ~visible.any(dim=-1, keepdim=True)
    # softmax of an all -inf row is NaN, and so is its gradient even if masked afterwards
    return scores.masked_fill(blind, 0.0).softmax(dim=-1).masked_fill(blind, 0.0)


def prior_and_mask(
    terms: Terms, device: torch.device, rows: Tensor | None = None
) -> tuple[Tensor | None, Tensor]:
    """Log-prior (None if uniform) after its temperature, and what is visible; of some rows."""
    log_prior, visible = None, terms.seen.mask(device)
    if terms.table is not None:
        log_prior = bias(terms.table, terms.seen)
        log_prior = log_prior if terms.temper is None else log_prior * terms.temper[..., None]
    if rows is not None:
        log_prior = None if log_prior is None else log_prior.index_select(2, rows)
        visible = visible.index_select(2, rows)
    return log_prior, visible


def bias(table: Tensor, seen: Visibility) -> Tensor:
    """[B or 1, H, T, end] log-prior of every pair; arbitrary (not -inf) where invisible."""
    query = seen.positions(table.device)[:, None]
    key = torch.arange(seen.end, device=table.device)[None, :]
    dense = table[:, (query - key).clamp(0, table.shape[1] - 1)][None]
    return dense.masked_fill(seen.exempted(table.device), 0.0) if seen.exempt else dense


def repeat_heads(x: Tensor, num_heads: int) -> Tensor:
    """[B, G, S, D] to [B, H, S, D]: each key/value head serves H/G query heads."""
    return x if x.shape[1] == num_heads else x.repeat_interleave(num_heads // x.shape[1], dim=1)


def _mean(weights: Tensor, v: Tensor) -> Tensor:
    return torch.matmul(weights.to(v.dtype), repeat_heads(v, weights.shape[1]))


class Decomposed(NamedTuple):
    """The factors, each [B, H, T, S] but for evidence [B, H, T, 1]; 0 where a key is invisible."""

    output: Tensor
    likelihood: Tensor
    """softmax over the visible keys of the content scores."""
    prior: Tensor
    """softmax over the visible keys of the log-prior."""
    evidence: Tensor
    """Z, the normaliser of the product; 0 in rows that see nothing."""
    posterior: Tensor
    """The attention weights."""


def decompose(q: Tensor, k: Tensor, v: Tensor, terms: Terms) -> Decomposed:
    """Attention in its factors. Quadratic memory: meant for inputs one can look at."""
    log_prior, visible = prior_and_mask(terms, q.device)
    end, heated = terms.seen.end, terms.heat(q)
    likelihood = weigh(heated, k[:, :, :end], None, visible, terms.scale)
    posterior = weigh(heated, k[:, :, :end], log_prior, visible, terms.scale)
    prior = softmax(torch.zeros_like(likelihood) if log_prior is None else log_prior, visible)
    prior = prior.expand_as(likelihood)
    overlap = (likelihood * prior).sum(-1, keepdim=True)
    evidence = torch.where(visible.any(-1, keepdim=True), 1 / overlap, 0.0)
    output = _mean(posterior, v[:, :, :end])
    factors = (pad(x, (0, k.shape[2] - end)) for x in (likelihood, prior, posterior))
    likelihood, prior, posterior = factors
    return Decomposed(output, likelihood, prior, evidence, posterior)
