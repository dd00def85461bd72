"""Predictors that know nothing of the sequence, or too little: what a model has to beat.

Each returns probabilities [B, S, C] for a posterior [B, S, C], so that every measure of fidelity
can be taken of it as of a model. A number such as "0.4 bits of entropy error" means nothing until
the uniform predictor has been seen to reach the same.
"""

import torch
from torch import Tensor

from bayesattn.bits import entropy


def uniform_predictor(posterior: Tensor) -> Tensor:
    """1 / C everywhere."""
    return torch.full_like(posterior, 1 / posterior.shape[-1])


def constant_predictor(posterior: Tensor) -> Tensor:
    """The mean posterior, the same at every position: of all constants the least KL(Bayes‖·)."""
    return posterior.mean((0, 1), keepdim=True).expand_as(posterior)


def instance_predictor(posterior: Tensor) -> Tensor:
    """The mean posterior of each sequence: a constant that knows the instance of the task."""
    return posterior.mean(1, keepdim=True).expand_as(posterior)


def constant_entropy_mae(posterior: Tensor) -> float:
    """Least mean |h - H| of any constant entropy h (the median), in bits.

    Right entropies can come with wrong probabilities, so this bounds what an entropy error shows.
    """
    bits = entropy(posterior)
    return (bits - bits.flatten().median()).abs().mean().item()


def instance_entropy_mae(posterior: Tensor) -> float:
    """Least mean |h_b - H| with a constant entropy per sequence, in bits."""
    bits = entropy(posterior)
    return (bits - bits.median(1, keepdim=True).values).abs().mean().item()
