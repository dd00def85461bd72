"""bam-uniform: attention without positional encoding has a uniform prior.

    softmax_j(q_i·k_j/√d) = likelihood_ij · prior_ij · Z_i     with prior_ij = 1/n_i for j <= i

The left side is PyTorch's own causal attention; the right side is `attend` by its dense kernel, the
definition, since a faster one may well call PyTorch's attention itself.
"""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from bayesattn import attend
from bayesattn.attention import Decomposed
from bayesattn.claims.identity import Comparison, IdentityStudy, relative_difference
from bayesattn.claims.registry import register
from bayesattn.priors import GeneralizedGaussian, Laplace, Prior, Uniform


@register("bam-uniform")
class BamUniform(IdentityStudy):
    """NoPE, the uniform prior, GGD with beta = 0, and the decomposition of Theorem 1."""

    def compare(self, q: Tensor, k: Tensor, v: Tensor) -> Comparison:
        """PyTorch's attention against ours."""
        heads = q.shape[1]
        nope = scaled_dot_product_attention(q, k, v, is_causal=True)
        flat = GeneralizedGaussian(heads).to(q.dtype)
        flat.theta_alpha.copy_(q[0, :, 0, 0])  # any scale will do
        product, without_evidence = theorem(q, k, v)

        def difference(prior: Prior) -> float:
            output = attend(q, k, v, prior.to(q.dtype), kernel="dense")
            assert isinstance(output, Tensor)
            return relative_difference(output, nope, v)

        errors = {
            "uniform prior": difference(Uniform(heads)),
            "GGD with shape 0": difference(flat),
            "Theorem 1": product,
        }
        wrong = difference(Laplace(heads, slopes=[1.0] * heads))
        return Comparison(errors, min(wrong, without_evidence))


def theorem(q: Tensor, k: Tensor, v: Tensor) -> tuple[float, float]:
    """Largest violation of posterior = likelihood · prior · evidence, under a random prior.

    Second, as a control, the same with the evidence left out.
    """
    heads, length = q.shape[1], q.shape[2]
    prior = GeneralizedGaussian(heads).to(q.dtype)
    prior.theta_alpha.copy_(q[0, :, 0, 0])
    prior.theta_beta.copy_(k[0, :, 0, 0])
    parts = attend(q, k, v, prior, decompose=True)
    assert isinstance(parts, Decomposed)

    distance = torch.arange(length)[:, None] - torch.arange(length)
    future = distance < 0
    content = q @ k.mT / q.shape[-1] ** 0.5
    bias = prior.log_prior(torch.arange(length))[:, distance.clamp(min=0)]
    likelihood, belief, posterior = (
        scores.masked_fill(future, -torch.inf).softmax(-1)
        for scores in (content, bias[None], content + bias)
    )
    product = parts.likelihood * parts.prior
    error = max(
        _largest(parts.likelihood - likelihood),
        _largest(parts.prior - belief),
        _largest(parts.posterior - posterior),
        _largest(product * parts.evidence - posterior),
    )
    return error, _largest(product - posterior)


def _largest(difference: Tensor) -> float:
    return difference.abs().max().item()
