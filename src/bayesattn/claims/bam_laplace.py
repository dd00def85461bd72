"""bam-laplace: ALiBi is attention under a Laplace prior.

    softmax_j(q_i·k_j/√d - m·(i-j)) ∝ exp(q_i·k_j/√d) · Laplace(j - i; 0, 1/m)    for j <= i

ALiBi is written here as published (Press, Smith and Lewis 2022, arXiv 2108.12409), with nothing
taken from `bayesattn`, so that the two sides share no code.
"""

import math

import torch
from torch import Tensor
from torch.distributions import Laplace as LaplaceDensity

from bayesattn import attend
from bayesattn.claims.identity import Comparison, IdentityStudy, relative_difference
from bayesattn.claims.registry import register
from bayesattn.priors import GeneralizedGaussian, Laplace, Prior


def alibi_slopes(heads: int) -> list[float]:
    """The slopes of ALiBi's published code: geometric, interleaved if heads is no power of two."""
    if math.log2(heads).is_integer():
        start = 2 ** (-(2 ** -(math.log2(heads) - 3)))
        return [start * start**head for head in range(heads)]
    power = 2 ** math.floor(math.log2(heads))
    return alibi_slopes(power) + alibi_slopes(2 * power)[0::2][: heads - power]


def alibi(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention with ALiBi's bias matrix added to the scores of q, k [1, H, T, D]."""
    length = q.shape[2]
    slopes = torch.tensor(alibi_slopes(q.shape[1]), dtype=q.dtype)[:, None, None]
    relative = torch.arange(length)[None, :] - torch.arange(length)[:, None]
    causal = torch.full((length, length), -torch.inf, dtype=q.dtype).triu(1)
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]) + slopes * relative + causal
    return torch.softmax(scores, dim=-1) @ v


def bayes(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """The posterior mean of v under Laplace densities of scale 1/slope centred at the query."""
    length = q.shape[2]
    scale = 1 / torch.tensor(alibi_slopes(q.shape[1]), dtype=q.dtype)[:, None, None]
    relative = torch.arange(length)[None, :] - torch.arange(length)[:, None]
    prior = LaplaceDensity(torch.zeros_like(scale), scale).log_prob(relative.to(q.dtype)).exp()
    content = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    likelihood = (content - content.amax(-1, keepdim=True)).exp()
    joint = (likelihood * prior).tril()
    return joint / joint.sum(-1, keepdim=True) @ v


@register("bam-laplace")
class BamLaplace(IdentityStudy):
    """ALiBi against the Laplace prior, the GGD with beta = 1, and Bayes' rule with the density."""

    def compare(self, q: Tensor, k: Tensor, v: Tensor) -> Comparison:
        """Published ALiBi against ours."""
        heads = q.shape[1]
        published = alibi(q, k, v)

        def difference(prior: Prior) -> float:
            output = attend(q, k, v, prior.to(q.dtype), kernel="dense")
            assert isinstance(output, Tensor)
            return relative_difference(output, published, v)

        def ggd(shape: float) -> GeneralizedGaussian:
            prior = GeneralizedGaussian(heads).to(q.dtype)
            prior.theta_alpha.copy_(torch.tensor(alibi_slopes(heads), dtype=torch.float64).log())
            prior.theta_beta.fill_(shape)
            return prior

        errors = {
            "Laplace prior": difference(Laplace(heads)),
            "GGD with shape 1": difference(ggd(1)),
            "Bayes' rule": relative_difference(bayes(q, k, v), published, v),
        }
        return Comparison(errors, difference(ggd(2)))
