"""Uniform prior = no positional encoding (NoPE, Kazemnejad et al. 2023, arXiv 2305.19466).

    log p(r) = 0

Under a causal mask the prior of query i is 1/n_i on each of its n_i visible keys.
"""

import math

import torch
from torch import Tensor

from bayesattn.priors.base import Prior


class Uniform(Prior):
    """`log p(r) = 0`: every visible key is as likely as any other. No parameters."""

    name = "uniform"
    settings = ()

    def __init__(self, num_heads: int) -> None:
        super().__init__(num_heads)
        # An empty buffer, so that .to(device) and .double() still have an effect.
        self.register_buffer("place", torch.zeros(0), persistent=False)

    def _log_prior(self, distance: Tensor) -> Tensor:
        return distance.new_zeros(self.num_heads, len(distance))

    def _reach(self, drop: float) -> Tensor:
        return torch.full((self.num_heads,), math.inf)
