"""A long prompt as the authors' inference code reads it, on the weights of one of our models.

After ArthurSBianchessi/BAM at commit 5a6579d, inference_models/bam_ssmax.py, with the prior in the
form that it has in training: 64 queries at a time, for which the mask is put together anew, n is
counted in the mask, and in every layer the bias of every pair is a power. Kinder than the original:
the cache is no larger than the prompt, and the head is applied only where logits are asked for.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from bayesattn.attention.kernels.dense import repeat_heads
from bayesattn.models import BayesForCausalLM
from bayesattn.priors import GeneralizedGaussian
from bayesattn.priors.generalized_gaussian import EPS

CHUNK = 64


class AuthorsReader:
    """Reads one sequence into a cache, as `bayesattn.evals.prefill.Reader` does.

    Args:
        model: with the authors' prior and SSMax, and no other encoding.
        tokens: how many will be read.
    """

    def __init__(self, model: BayesForCausalLM, tokens: int) -> None:
        config: Any = model.config
        published = config.prior == "ggd" and config.ssmax and config.ssmax_scope == "content+prior"
        published = published and config.ssmax_horizon is None
        plain = config.encoding == "none" and not config.exempt and config.sliding_window is None
        if not (published and plain and not config.shared_prior):
            raise ValueError(
                "the authors' way needs a model with prior ggd in every layer, SSMax on content "
                "and prior, and no other encoding"
            )
        self.model = model
        shape = (1, config.num_key_value_heads, tokens, config.head_dim)
        self.caches = [(torch.zeros(shape), torch.zeros(shape)) for _ in model.model.layers]
        self.length = 0

    @torch.no_grad()
    def logits(self, tokens: Tensor, asked: Sequence[int]) -> Tensor:
        """Read [1, n] further tokens; logits [1, k, vocabulary] after the asked ones."""
        found: list[Tensor] = []
        for start in range(0, tokens.shape[1], CHUNK):
            chunk = tokens[:, start : start + CHUNK]
            hidden = self._forward(chunk)
            here = [at - start for at in sorted(asked) if start <= at < start + chunk.shape[1]]
            found.append(self.model.lm_head(hidden[:, here]))
        return torch.cat(found, dim=1)

    def rewind(self, length: int) -> int:
        """Forget all but the first `length` tokens."""
        self.length = min(length, self.length)
        return self.length

    def _forward(self, tokens: Tensor) -> Tensor:
        body: Any = self.model.model
        start, count = self.length, tokens.shape[1]
        self.length += count
        mask = torch.full((count, count), float("-inf")).triu(1)
        mask = torch.hstack([torch.zeros(count, start), mask])
        log_n = mask.isfinite().sum(dim=-1).log()
        x = body.embed_tokens(tokens)
        for layer, cache in zip(body.layers, self.caches, strict=True):
            x = x + self._attention(layer, layer.input_layernorm(x), cache, mask, log_n)
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        return body.norm(x)

    def _attention(
        self, layer: Any, x: Tensor, cache: tuple[Tensor, Tensor], mask: Tensor, log_n: Tensor
    ) -> Tensor:
        attention, width = layer.self_attn, self.model.config.head_dim
        assert width is not None
        q, k, v = (
            project(x).unflatten(-1, (-1, width)).transpose(1, 2)
            for project in (attention.q_proj, attention.k_proj, attention.v_proj)
        )
        stop = self.length
        for kept, new in zip(cache, (k, v), strict=True):
            kept[:, :, stop - new.shape[2] : stop] = new
        k, v = (repeat_heads(kept[:, :, :stop], q.shape[1]) for kept in cache)
        scores = q @ k.transpose(-1, -2) / math.sqrt(width)
        bias = _bias(attention.prior, stop - x.shape[1], stop)
        scores = (scores + bias) * (attention.ssmax.scale[:, None, None] * log_n[:, None]) + mask
        attended = scores.softmax(dim=-1) @ v
        return attention.o_proj(attended.transpose(1, 2).flatten(2))


def _bias(prior: GeneralizedGaussian, start: int, stop: int) -> Tensor:
    """[H, stop - start, stop] log-prior of the last queries, a power for every pair."""
    distance = torch.arange(stop)[None] - torch.arange(start, stop)[:, None]
    alpha, beta, mu = (x[:, None, None] for x in (prior.theta_alpha, prior.beta, prior.mu))
    return -((distance - mu).abs() + EPS).pow(beta) * alpha.exp()
