"""The definition: every score written out. Quadratic memory, any dtype, differentiable.

score_ij = scale · content_i · q_i·k_j + temper_i · (table[i - j] + decay_i - decay_j)
out_i    = Σ_j softmax_j(score_ij) v_j                     over the keys j that i sees

A sink is one more key of value 0; a score_mod changes the scores before they are masked. `weigh`
takes any log-prior and any mask; `posterior` those of `Terms`, for all queries or some rows of
them. Whatever else states attention calls one of the two. Theorem 1 of BAM says that attention
factors into likelihood · prior · evidence, row by row:

    softmax(f + g) = softmax(f) · softmax(g) · Z,      Z = 1 / Σ_j softmax(f)_j softmax(g)_j

for content scores f and log-prior g, both after the temperature if there is one.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from bayesattn.attention.score_mod import modify
from bayesattn.attention.terms import Terms
from bayesattn.attention.visibility import Visibility


def dense(q: Tensor, k: Tensor, v: Tensor, terms: Terms) -> Tensor:
    """Output [B, H, T, D] for q [B, H, T, D], k and v [B, G, S, D]."""
    return _mean(posterior(q, k, terms), v[:, :, : terms.seen.end])


def posterior(q: Tensor, k: Tensor, terms: Terms, rows: Tensor | None = None) -> Tensor:
    """[B, H, T, end] posterior; with `rows` [R] that of these queries, q [B, H, R, D], only."""
    log_prior, visible = prior_and_mask(terms, q, rows)
    heated, keys, seen = terms.heat(q, rows), k[:, :, : terms.seen.end], terms.seen
    if terms.score_mod is None:
        all_see = seen.first is None
        given = (heated, keys, log_prior, visible, terms.scale)
        return weigh(*given, all_see=all_see, sink=terms.sink)
    scores = _content(heated, keys, terms.scale)
    scores = scores.to(_wide(scores)) if log_prior is None else scores + log_prior
    at = seen.positions(q.device)
    scores = modify(terms.score_mod, scores, at if rows is None else at[rows])
    return softmax(scores, visible & (scores > -torch.inf), terms.sink)


def weigh(
    q: Tensor,
    k: Tensor,
    log_prior: Tensor | None,
    visible: Tensor,
    scale: float,
    *,
    all_see: bool = False,
    sink: Tensor | None = None,
) -> Tensor:
    """[B, H, R, S] posterior over keys [B, G, S, D] of any rows of queries [B, H, R, D].

    Args:
        q: the queries, times their temperature.
        k: the keys.
        log_prior: [B or 1, H or 1, R, S], finite where visible; None if uniform.
        visible: [B or 1, 1, R, S] any mask.
        scale: factor of q·k.
        all_see: every row sees a key, and all sequences the same ones, which saves memory.
        sink: [H] score of one more key, of which nothing is returned.
    """
    content = _content(q, k, scale)
    if not all_see or sink is not None:
        return softmax(content if log_prior is None else content + log_prior, visible, sink)
    # The mask rides along with the prior, which is smaller than the scores by the batch.
    wide = _wide(content)
    mask = visible.new_zeros(visible.shape, dtype=wide).masked_fill(~visible, float("-inf"))
    return (content + (mask if log_prior is None else log_prior + mask)).softmax(dim=-1)


def softmax(scores: Tensor, visible: Tensor, sink: Tensor | None = None) -> Tensor:
    """Softmax over the visible keys and the sink, 0 elsewhere; rows that see nothing are all 0."""
    scores = scores.to(_wide(scores)).masked_fill(~visible, float("-inf"))
    if sink is not None:
        last = sink.to(scores.dtype)[:, None, None].expand(*scores.shape[:3], 1)
        return torch.cat([scores, last], -1).softmax(dim=-1)[..., :-1]
    blind = ~visible.any(dim=-1, keepdim=True)
    # softmax of an all -inf row is NaN, and so is its gradient even if masked afterwards
    return scores.masked_fill(blind, 0.0).softmax(dim=-1).masked_fill(blind, 0.0)


def prior_and_mask(
    terms: Terms, q: Tensor, rows: Tensor | None = None
) -> tuple[Tensor | None, Tensor]:
    """Log-prior (None if uniform) after its temperature, and what is visible; of some rows."""
    log_prior, visible = None, terms.seen.mask(q.device)
    if terms.table is not None:
        log_prior = bias(terms.table, terms.seen)
    if rows is not None:
        log_prior = None if log_prior is None else log_prior.index_select(2, rows)
        visible = visible.index_select(2, rows)
    if terms.decay is not None:
        gated = decayed(terms.decay, terms.seen, rows).to(_wide(q))
        log_prior = gated if log_prior is None else log_prior + gated
    if terms.temper is not None and log_prior is not None:
        temper = terms.temper if rows is None else terms.temper.index_select(2, rows)
        log_prior = log_prior * temper[..., None]
    return log_prior, visible


def bias(table: Tensor, seen: Visibility) -> Tensor:
    """[B or 1, H, T, end] log-prior of every pair; arbitrary (not -inf) where invisible."""
    query = seen.positions(table.device)[:, None]
    key = torch.arange(seen.end, device=table.device)[None, :]
    dense = table[:, (query - key).clamp(0, table.shape[1] - 1)][None]
    return dense.masked_fill(seen.exempted(table.device), 0.0) if seen.exempt else dense


def decayed(decay: Tensor, seen: Visibility, rows: Tensor | None) -> Tensor:
    """[B, H, T, end] decay_i - decay_j, what gates between key and query forgot; 0 if exempt."""
    at, exempt = seen.positions(decay.device), seen.exempted(decay.device)
    if rows is not None:
        at, exempt = at[rows], exempt.index_select(2, rows)
    gated = decay[:, :, at, None] - decay[:, :, None, : seen.end]
    return gated.masked_fill(exempt, 0.0)


def repeat_heads(x: Tensor, num_heads: int) -> Tensor:
    """[B, G, S, D] to [B, H, S, D]: each key/value head serves H/G query heads."""
    return x if x.shape[1] == num_heads else x.repeat_interleave(num_heads // x.shape[1], dim=1)


def sum_heads(dx: Tensor, groups: int) -> Tensor:
    """[B, H, S, D] gradients of repeated heads to those [B, G, S, D] of the heads themselves."""
    batch, heads, *rest = dx.shape
    return dx if heads == groups else dx.reshape(batch, groups, -1, *rest).sum(2)


def _content(q: Tensor, k: Tensor, scale: float) -> Tensor:
    return torch.matmul(q * scale, repeat_heads(k, q.shape[1]).transpose(-1, -2))


def _wide(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)


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
    log_prior, visible = prior_and_mask(terms, q)
    end, heated = terms.seen.end, terms.heat(q)
    flat = None if terms.sink is None else torch.zeros_like(terms.sink)
    likelihood = weigh(heated, k[:, :, :end], None, visible, terms.scale, sink=flat)
    posterior = weigh(heated, k[:, :, :end], log_prior, visible, terms.scale, sink=terms.sink)
    log_prior = torch.zeros_like(likelihood) if log_prior is None else log_prior
    prior = softmax(log_prior.expand_as(likelihood), visible, terms.sink)
    overlap = (likelihood * prior).sum(-1, keepdim=True)
    if terms.sink is not None:  # its content score is 0, its log-prior what was learned
        escaped = [1 - x.sum(-1, keepdim=True) for x in (likelihood, prior)]
        overlap = overlap + escaped[0] * escaped[1]
    evidence = torch.where(visible.any(-1, keepdim=True), 1 / overlap, 0.0)
    output = _mean(posterior, v[:, :, :end])
    factors = (pad(x, (0, k.shape[2] - end)) for x in (likelihood, prior, posterior))
    likelihood, prior, posterior = factors
    return Decomposed(output, likelihood, prior, evidence, posterior)
