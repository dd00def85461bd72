"""Forget gates of the Forgetting Transformer (Lin et al. 2025, arXiv 2503.02130).

    log p(i, j) = Σ_{j < l <= i} ln f_l = c_i - c_j,      c_i = Σ_{l <= i} ln f_l
    f_l         = sigmoid(w[h] · x_l + b[h])

This prior depends on the text: a gate near 0 removes the weight of all keys before it. If all
gates of a head are equal, it is the Laplace prior of slope -ln f. c_i cancels in the softmax, so
the prior is one number for each key. It multiplies any prior over distance.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, logsigmoid

from bayesattn.checks import at_least


class ForgetGate(nn.Module):
    """`ln f = ln sigmoid(w · x + b)`, a gate for each token and query head.

    Args:
        hidden_size: width of the tokens x.
        num_heads: query heads.
        time: at initialisation the heads remember from 1 to so many tokens, spaced evenly on a
            logarithmic scale, where f = exp(-1 / tokens); None is the published b = 0, f = 1/2.
    """

    def __init__(self, hidden_size: int, num_heads: int, time: float | None = None) -> None:
        super().__init__()
        self.num_heads = at_least("num_heads", num_heads, 1)
        check_time(time)
        self.time = time
        self.weight = nn.Parameter(torch.empty(num_heads, at_least("hidden_size", hidden_size, 1)))
        self.bias = nn.Parameter(torch.empty(num_heads))
        self.reset_parameters()

    def initial_bias(self) -> Tensor:
        """[H] bias at initialisation."""
        if self.time is None:
            return torch.zeros(self.num_heads)
        times = torch.linspace(0, math.log(self.time), self.num_heads).exp()
        return -torch.expm1(1 / times).log()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        bound = self.weight.shape[1] ** -0.5
        nn.init.uniform_(self.weight, -bound, bound)
        self.bias.copy_(self.initial_bias())

    def forward(self, x: Tensor) -> Tensor:
        """[B, H, T] ln f of tokens x [B, T, hidden_size], in float32 or wider."""
        wide = torch.promote_types(self.weight.dtype, torch.float32)
        with torch.autocast(x.device.type, enabled=False):
            gates = linear(x.to(wide), self.weight.to(wide), self.bias.to(wide))
        return logsigmoid(gates).transpose(1, 2)

    def extra_repr(self) -> str:
        return f"hidden_size={self.weight.shape[1]}, num_heads={self.num_heads}, time={self.time}"


def accumulate(log_gates: Tensor) -> Tensor:
    """C [B, H, T] of ln f [B, H, T], in float64: c grows with the text, differences stay small."""
    wide = torch.float32 if log_gates.device.type == "mps" else torch.float64  # it has no wider one
    return log_gates.to(wide).cumsum(-1)


def check_time(time: float | None) -> None:
    """Refuse an invalid time."""
    if time is not None and not 1 <= time < math.inf:
        raise ValueError(f"the time of a forget gate is 1 token or more, or None, not {time}")
