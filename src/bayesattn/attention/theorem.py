"""Theorem 1 of BAM: attention factors into likelihood · prior · evidence, row by row.

    softmax(f + g) = softmax(f) · softmax(g) · Z,      Z = 1 / Σ_j softmax(f)_j softmax(g)_j

for content scores f and log-prior g, both after the temperature if there is one.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from bayesattn.attention.kernels.dense import prior_and_mask, repeat_heads, softmax, weigh
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
    log_prior, visible = prior_and_mask(table, temper, seen, q.device)
    keys = k[:, :, : seen.end]
    likelihood = weigh(q, keys, None, visible, scale)
    posterior = weigh(q, keys, log_prior, visible, scale)
    prior = softmax(torch.zeros_like(likelihood) if log_prior is None else log_prior, visible)
    prior = prior.expand_as(likelihood)
    overlap = (likelihood * prior).sum(-1, keepdim=True)
    evidence = torch.where(visible.any(-1, keepdim=True), 1 / overlap, 0.0)
    output = posterior.to(v.dtype) @ repeat_heads(v[:, :, : seen.end], q.shape[1])
    unseen = k.shape[2] - seen.end
    likelihood, prior, posterior = (
        torch.nn.functional.pad(x, (0, unseen)) for x in (likelihood, prior, posterior)
    )
    return Decomposed(output, likelihood, prior, evidence, posterior)
