"""Theorem 1 of BAM: attention factors into likelihood · prior · evidence, row by row.

    softmax(f + g) = softmax(f) · softmax(g) · Z,      Z = 1 / Σ_j softmax(f)_j softmax(g)_j

for content scores f and log-prior g, both after the temperature if there is one.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from bayesattn.attention.kernels.dense import repeat_heads, scores, softmax
from bayesattn.attention.visibility import Visibility


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


def decompose(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    table: Tensor | None,
    temper: Tensor | None,
    seen: Visibility,
    scale: float,
) -> Decomposed:
    """Arguments as of the dense kernel. Quadratic memory: meant for inputs one can look at."""
    content, log_prior = scores(q, k, table, temper, seen, scale)
    log_prior = torch.zeros_like(content) if log_prior is None else log_prior.expand_as(content)
    visible = seen.mask(q.device)
    likelihood, prior = softmax(content, visible), softmax(log_prior, visible)
    posterior = softmax(content + log_prior, visible)
    overlap = (likelihood * prior).sum(-1, keepdim=True)
    evidence = torch.where(visible.any(-1, keepdim=True), 1 / overlap, 0.0)
    output = posterior.to(v.dtype) @ repeat_heads(v[:, :, : seen.end], q.shape[1])
    unseen = k.shape[2] - seen.end
    likelihood, prior, posterior = (
        torch.nn.functional.pad(x, (0, unseen)) for x in (likelihood, prior, posterior)
    )
    return Decomposed(output, likelihood, prior, evidence, posterior)
