"""Distances between distributions over outcomes, in bits and in float64.

C outcomes are the last dimension. `posterior` [..., C] holds exact probabilities, zeros included;
predictions come as log-probabilities (nats) [..., C], which may be -inf.
"""

import math

import torch
from torch import Tensor

LN2 = math.log(2.0)


def log_probabilities(logits: Tensor) -> Tensor:
    """Float64 log-softmax of logits of any precision, over the last dimension."""
    return logits.to(torch.float64).log_softmax(dim=-1)


def entropy(probabilities: Tensor) -> Tensor:
    """H(p) = -Σ p log2 p, with 0 log 0 = 0."""
    return -torch.xlogy(probabilities, probabilities).sum(dim=-1) / LN2


def kl_divergence(posterior: Tensor, log_probs: Tensor) -> Tensor:
    """KL(p ‖ q) = Σ p (log2 p - log2 q); outcomes with p = 0 add nothing, for any q.

    Infinite where q = 0 < p. Values below zero from rounding are set to 0.
    """
    cross = torch.where(posterior > 0, posterior * log_probs, 0.0)
    return (torch.xlogy(posterior, posterior) - cross).sum(dim=-1).clamp_min(0.0) / LN2


def total_variation(posterior: Tensor, log_probs: Tensor) -> Tensor:
    """TV(p, q) = ½ Σ |p - q|, between 0 and 1."""
    return 0.5 * (posterior - log_probs.exp()).abs().sum(dim=-1)


def entropy_errors(log_probs: Tensor, posterior: Tensor) -> Tensor:
    """H(q) - H(p), signed, per token."""
    return entropy(log_probs.exp()) - entropy(posterior)
