"""Bucketed prior = relative position bias of T5 (Raffel et al. 2020, arXiv 1910.10683).

    log p(r) = theta_bucket[h, bucket(r)]

Causal buckets: the first half hold one distance each, the rest grow logarithmically up to
`max_distance`, and the last holds everything beyond.
"""

import math

import torch
from torch import Tensor, nn

from bayesattn.checks import at_least
from bayesattn.priors.base import Prior, wide


class Bucketed(Prior):
    """`log p(r) = theta_bucket[h, bucket(r)]`, a learned step function of distance.

    `theta_bucket` [H, num_buckets] is T5's embedding transposed. It is initialised at zero, the
    uniform prior. T5 draws it at random, but heads already differ by their content.

    Args:
        num_buckets: steps of the function.
        max_distance: the last bucket starts at this distance or before.
    """

    name = "bucketed"
    settings = ("num_buckets", "max_distance")

    def __init__(self, num_heads: int, num_buckets: int = 32, max_distance: int = 128) -> None:
        super().__init__(num_heads)
        self.num_buckets = at_least("num_buckets", num_buckets, 2)
        self.max_distance = at_least("max_distance", max_distance, num_buckets // 2 + 1)
        self.theta_bucket = nn.Parameter(torch.empty(num_heads, num_buckets))
        self.reset_parameters()

    def initial_values(self) -> dict[str, Tensor]:
        return {"theta_bucket": torch.zeros(self.num_heads, self.num_buckets)}

    def bucket(self, distance: Tensor) -> Tensor:
        exact = self.num_buckets // 2
        # T5's operations in T5's order and precision: rounding must not move a bucket.
        growth = torch.log(distance.float().clamp(min=exact) / exact)
        growth = growth / math.log(self.max_distance / exact) * (self.num_buckets - exact)
        far = (exact + growth.long()).clamp(max=self.num_buckets - 1)
        return torch.where(distance < exact, distance.long(), far)

    def _log_prior(self, distance: Tensor) -> Tensor:
        return self.theta_bucket.to(distance.dtype).index_select(1, self.bucket(distance))

    def _reach(self, drop: float) -> Tensor:
        # Every distance from max_distance on is in the last bucket, so this scan is complete.
        distance = torch.arange(self.max_distance + 1, device="cpu")
        values = wide(self.theta_bucket)[:, self.bucket(distance)]
        near_top = values >= values.amax(dim=1, keepdim=True) - drop
        last = torch.where(near_top, distance, 0).amax(dim=1).double()
        return last.masked_fill(near_top[:, -1], math.inf)

    def extra_repr(self) -> str:
        buckets = f"num_buckets={self.num_buckets}, max_distance={self.max_distance}"
        return f"{super().extra_repr()}, {buckets}"
