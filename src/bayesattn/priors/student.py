"""Logarithmic prior of KERPLE (Chi et al. 2022, arXiv 2205.09921).

    log p(r) = -c[h] · log(1 + a[h] · r),   c, a > 0

The density (1 + a r)^-c falls as a power of distance, like the tail of Student's t, whose
(1 + t²/nu)^(-(nu+1)/2) goes as t^-(nu+1): c plays nu + 1 and 1/a the scale.
Far keys lose weight, but never as fast as under a Laplace prior.
"""

import torch
from torch import Tensor, nn

from bayesattn.priors.base import Prior, wide

# exp(60) times the logarithm of any distance, then times SSMax, stays below float32's maximum.
MAX_LOG = 60.0


class Student(Prior):
    """`log p(r) = -c · log(1 + a r)`, learned through `theta_c = log c` and `theta_a = log a`, [H].

    At initialisation c is spread evenly over (0, 2) and a = 1/2. KERPLE's authors draw c from this
    interval, and a with this mean.
    """

    name = "student"
    settings = ()

    def __init__(self, num_heads: int) -> None:
        super().__init__(num_heads)
        self.theta_c = nn.Parameter(torch.empty(num_heads))
        self.theta_a = nn.Parameter(torch.empty(num_heads))
        self.reset_parameters()

    def initial_values(self) -> dict[str, Tensor]:
        """Powers c spread over the heads; the tail begins at the same distance in all heads."""
        c = 2 * (torch.arange(self.num_heads) + 0.5) / self.num_heads
        return {"theta_c": c.log(), "theta_a": torch.full_like(c, 0.5).log()}

    @property
    def c(self) -> Tensor:
        """[H] power of the tail."""
        return self.theta_c.to(self._dtype).clamp(max=MAX_LOG).exp()

    @property
    def a(self) -> Tensor:
        """[H] inverse of the distance at which the tail begins."""
        return self.theta_a.to(self._dtype).clamp(max=MAX_LOG).exp()

    def _log_prior(self, distance: Tensor) -> Tensor:
        return -self.c[:, None] * torch.log1p(self.a[:, None] * distance)

    def _reach(self, drop: float) -> Tensor:
        c, a = (wide(theta).clamp(max=MAX_LOG).exp() for theta in (self.theta_c, self.theta_a))
        return (torch.expm1(drop / c) / a).floor()
