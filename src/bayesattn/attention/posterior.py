"""`attend`: attention as a posterior mean, one entry point for every prior, temperature and kernel.

    posterior_ij ∝ exp(q_i·k_j/√d) · prior(i - j)        output_i = Σ_j posterior_ij v_j

Shapes: B batch, H query heads, G key/value heads, T queries, S keys, D head width.
"""

import logging
import math
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from bayesattn.attention.kernels import dense as dense_kernel
from bayesattn.attention.ssmax import SSMax, temperature
from bayesattn.attention.visibility import Visibility, first_visible
from bayesattn.priors import Prior, Uniform

logger = logging.getLogger(__name__)

Kernel = Literal["auto", "dense", "strided", "flex"]
KERNELS: tuple[Kernel, ...] = get_args(Kernel)


class Certified(NamedTuple):
    """Output of attention with skipped keys, and how far it can be from the exact one."""

    output: Tensor
    bound: Tensor
    """[B, H] largest possible absolute error of any output entry of that head."""


class Decomposed(NamedTuple):
    """Theorem 1: posterior = likelihood · prior · evidence, each [B, H, T, S] (evidence [B, H, T, 1])."""

    output: Tensor
    likelihood: Tensor
    """softmax over visible keys of the content scores."""
    prior: Tensor
    """softmax over visible keys of the log-prior."""
    evidence: Tensor
    """Z = 1 / Σ_j likelihood_j · prior_j, the normaliser of the product."""
    posterior: Tensor
    """The attention weights."""


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    prior: Prior | Tensor | None = None,
    *,
    ssmax: SSMax | Tensor | None = None,
    documents: Tensor | None = None,
    padding: Tensor | None = None,
    offset: int | None = None,
    window: int | None = None,
    exempt: int = 0,
    scale: float | None = None,
    kernel: Kernel = "auto",
    tolerance: float | None = None,
    decompose: bool = False,
) -> Tensor | Certified | Decomposed:
    """Causal attention under a positional prior."""
    num_heads, num_queries = q.shape[1], q.shape[2]
    offset = k.shape[2] - num_queries if offset is None else offset
    seen = Visibility(
        num_queries, offset, first_visible(num_queries, offset, documents, padding), window, exempt
    )
    table = None
    if isinstance(prior, Tensor):
        table = prior
    elif prior is not None and not isinstance(prior, Uniform):
        table = prior.table(seen.span)
    scale = 1.0 / math.sqrt(q.shape[-1]) if scale is None else scale
    temper = None
    if ssmax is not None:
        s = ssmax.scale if isinstance(ssmax, SSMax) else ssmax
        temper = temperature(s, seen.count(q.device))
        q = (q * temper[..., None]).to(q.dtype)
        if isinstance(ssmax, SSMax) and ssmax.scope == "content":
            temper = None
    if decompose:
        content, bias = dense_kernel.scores(q, k, table, temper, seen, scale)
        mask = seen.mask(q.device)
        bias = torch.zeros_like(content) if bias is None else bias.expand_as(content)
        likelihood, p = dense_kernel.softmax(content, mask), dense_kernel.softmax(bias, mask)
        posterior = dense_kernel.softmax(content + bias, mask)
        out = posterior.to(v.dtype) @ dense_kernel.repeat_heads(v[:, :, : seen.end], num_heads)
        return Decomposed(out, likelihood, p, 1 / (likelihood * p).sum(-1, keepdim=True), posterior)
    if kernel == "strided":
        from bayesattn.attention.kernels.strided import strided

        if table is None:
            table = q.new_zeros(num_heads, seen.span)
        return strided(q, k, v, table, temper, seen, scale)
    return dense_kernel.dense(q, k, v, table, temper, seen, scale)
