"""Generalized Gaussian prior of BAM (Bianchessi et al. 2025, arXiv 2505.22842).

    log p(r) = -exp(theta_alpha[h]) · (|r + mu[h]| + eps) ^ theta_beta[h]
    mu[h]    = 2 sinh(theta_mu[h]),   eps = 1e-5

This is the paper's -|(j-i-mu)/alpha|^beta with j-i = -r and alpha = exp(-theta_alpha/theta_beta).
The shape beta is any real number: 2 is a Gaussian, 1 is ALiBi's Laplace, 0 is uniform (NoPE), and
a head with beta < 0 ignores near keys and prefers far ones.

Numerics: the power is taken in the log domain and its logarithm is clamped at 80. So the log-prior
never falls below -exp(80) ≈ -5.5e34 and stays finite in float32 after SSMax multiplies it. Where
the clamp is active the gradient is 0.
"""

import math
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from bayesattn.checks import readable
from bayesattn.priors.base import Prior, wide
from bayesattn.priors.laplace import STEEPEST, alibi_log2_slopes, local_log2_slopes

EPS = 1e-5
MAX_LOG = 80.0
# |mu| is at most about 1e17: beyond, the location is infinite in float32, and 0 · inf is NaN.
MAX_THETA_MU = 40.0

Init = Literal["uniform", "alibi", "mixed", "local", "sharp", "linear", "sampled"]
HeadClass = Literal["local", "retrieval", "aggressive"]
# Class limits of the paper's Section 3.3.
RETRIEVAL_BELOW, AGGRESSIVE_BELOW = 0.0, -0.6

# Names in the authors' first code, where each has the shape [1, H, 1, 1]. Its latest version has
# our formula. Earlier versions take exp(scale) inside the power, which is the same at shape 1 only.
OLD_NAMES = {"shape": "theta_beta", "scale": "theta_alpha", "loc": "theta_mu"}


class GeneralizedGaussian(Prior):
    """`log p(r) = -exp(theta_alpha) · (|r + mu| + eps)^theta_beta`, three numbers per head.

    Inits:
        uniform: theta_alpha = theta_beta = 0, as in the paper.
        alibi: beta 1 with ALiBi's slopes.
        mixed: half the heads Laplace with slopes 2^-1 … 2^-4, half uniform; an odd head is uniform.
        local: all heads Laplace with slopes 2^-1 … 2^-4.
        sharp: as mixed, with slopes 2^2 … 2^-1, which concentrate on the neighbours of a token.
        linear: beta from 0 to 1 over the heads, theta_alpha = 0.
        sampled: theta_alpha and theta_beta drawn from N(0, 1).

    Args:
        init: one of the above; theta_mu always starts at 0.
        learn_mu: train theta_mu, which the published setting does not.
        learned: train theta_alpha and theta_beta; if False, they keep their initial values.
        positive: clamp beta at 0 from below, so no head can prefer far keys. The
            gradient of theta_beta passes through the clamp, so a head can leave 0 again.
        generator: source of the `sampled` init; torch's global one if None.
    """

    name = "ggd"
    settings = ("positive",)

    def __init__(
        self,
        num_heads: int,
        init: Init = "uniform",
        learn_mu: bool = False,
        positive: bool = False,
        learned: bool = True,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(num_heads)
        if init not in get_args(Init):
            raise ValueError(f"unknown init {init!r}; choose one of {', '.join(get_args(Init))}")
        self.init: Init = init
        self.positive, self.learn_mu, self.learned = positive, learn_mu, learned
        self.theta_alpha = nn.Parameter(torch.empty(num_heads), requires_grad=learned)
        self.theta_beta = nn.Parameter(torch.empty(num_heads), requires_grad=learned)
        self.theta_mu = nn.Parameter(torch.empty(num_heads), requires_grad=learn_mu)
        self.frozen = () if learn_mu else ("theta_mu",)
        self.frozen += () if learned else ("theta_alpha", "theta_beta")
        # Keep a seed, not the samples: a reset then repeats them, also after the meta device.
        self._seed = 0
        if init == "sampled":
            device = "cpu" if generator is None else generator.device
            self._seed = int(torch.randint(2**62, (), generator=generator, device=device))
        # torch leaves the hook's type open.
        self.register_load_state_dict_pre_hook(_rename_old)  # pyright: ignore[reportUnknownMemberType]
        self.reset_parameters()

    @classmethod
    def layer_options(cls, num_heads: int, local: bool) -> dict[str, Any]:
        """The local initialisation if `local`, else the mixed one."""
        return {"init": "local" if local else "mixed"}

    def initial_values(self) -> dict[str, Tensor]:
        heads, local = self.num_heads, self.num_heads // 2
        alpha, beta = torch.zeros(heads), torch.zeros(heads)
        if self.init == "alibi":
            alpha, beta = alibi_log2_slopes(heads) * math.log(2), torch.ones(heads)
        elif self.init in ("mixed", "local", "sharp"):
            local = heads if self.init == "local" else local
            steepest = 2 if self.init == "sharp" else STEEPEST
            alpha[:local] = local_log2_slopes(local, steepest) * math.log(2)
            beta[:local] = 1
        elif self.init == "linear":
            beta = torch.linspace(0, 1, heads)
        elif self.init == "sampled":
            generator = torch.Generator().manual_seed(self._seed)
            alpha, beta = torch.randn(2, heads, generator=generator, device="cpu")
        return {"theta_alpha": alpha, "theta_beta": beta, "theta_mu": torch.zeros(heads)}

    @property
    def alpha(self) -> Tensor:
        """[H] scale, exp(-theta_alpha/theta_beta); inf where beta is 0, the uniform prior."""
        beta = self.beta
        flat = beta == 0
        scale = (-self.theta_alpha.to(self._dtype) / beta.masked_fill(flat, 1)).exp()
        return scale.masked_fill(flat, math.inf)

    @property
    def beta(self) -> Tensor:
        """[H] shape, theta_beta; at least 0 if `positive`."""
        return self._shape(self.theta_beta.to(self._dtype))

    @property
    def mu(self) -> Tensor:
        """[H] location, 2 sinh(theta_mu): for beta > 0 the prior peaks at distance -mu."""
        return _location(self.theta_mu.to(self._dtype))

    def classes(self) -> list[HeadClass]:
        """Class of each head: local (beta >= 0), retrieval (-0.6 <= beta < 0) or aggressive."""
        names: tuple[HeadClass, ...] = ("local", "retrieval", "aggressive")
        beta = self._shape(self.theta_beta.detach())
        # Compared as tensors, so that a float32 -0.6 counts as -0.6.
        rank = (beta < RETRIEVAL_BELOW).int() + (beta < AGGRESSIVE_BELOW).int()
        return [names[int(r)] for r in rank]

    def _log_prior(self, distance: Tensor) -> Tensor:
        alpha = self.theta_alpha.to(distance.dtype)
        beta = self._shape(self.theta_beta.to(distance.dtype))
        frozen = not self.theta_mu.requires_grad
        if frozen and readable(self.theta_mu) and not bool(self.theta_mu.any()):
            # mu is 0 here, so all heads share one row. Logarithms take most of the time.
            shifted = distance[None]
        else:
            shifted = distance + self.mu[:, None]
        size = shifted.abs() + EPS
        if not frozen:
            # |x| has a kink at 0, where we take slope 0. The gradient must be cut there: for a
            # steep power it overflows, and inf times sign(0) would be NaN.
            size = size.masked_fill(shifted == 0, EPS)
        log_power = alpha[:, None] + beta[:, None] * size.log()
        return -log_power.clamp(max=MAX_LOG).exp()

    def _reach(self, drop: float) -> Tensor:
        alpha, beta = wide(self.theta_alpha), self._shape(wide(self.theta_beta))
        mu = _location(wide(self.theta_mu))
        # Heads with beta > 0 peak at the integer distance nearest to -mu. From there
        # size^beta may grow by drop / exp(alpha).
        peak = (-mu).clamp(min=0).round()
        log_power = beta * ((peak + mu).abs() + EPS).log()
        size = (torch.logaddexp(log_power, math.log(drop) - alpha) / beta).exp()
        last = torch.maximum((size - EPS - mu).floor(), peak)
        # A head that is clamped at all distances is as flat as one with beta <= 0.
        return last.masked_fill((beta <= 0) | (alpha + log_power >= MAX_LOG), math.inf)

    def _shape(self, theta_beta: Tensor) -> Tensor:
        if not self.positive:
            return theta_beta
        return theta_beta + (theta_beta.clamp(min=0) - theta_beta).detach()

    def extra_repr(self) -> str:
        shown = f"{super().extra_repr()}, init={self.init!r}"
        shown += f", learn_mu={self.theta_mu.requires_grad}"
        shown += "" if self.theta_beta.requires_grad else ", learned=False"
        return shown + (", positive=True" if self.positive else "")


def _location(theta_mu: Tensor) -> Tensor:
    return 2 * theta_mu.clamp(-MAX_THETA_MU, MAX_THETA_MU).sinh()


def _rename_old(module: nn.Module, state: dict[str, Any], prefix: str, *_: object) -> None:
    for old, new in OLD_NAMES.items():
        if prefix + old in state and prefix + new not in state:
            state[prefix + new] = state.pop(prefix + old).reshape(-1)
