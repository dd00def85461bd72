"""Scalable Softmax (Nakanishi 2025, arXiv 2501.19399): logits times `s · ln n`.

A softmax over n keys flattens as n grows. Multiplying the logits of query i by `s[h] · ln(n_i)`,
n_i the number of keys it sees, keeps a peak a peak. Two orders exist and differ as soon as a prior
is present:

    content+prior   (q·k/√d + B) · s ln n     what BAM publishes: the prior sharpens with length
    content          q·k/√d · s ln n + B      what its ALiBi baseline does
"""

from typing import Literal, get_args

import torch
from torch import Tensor, nn

Scope = Literal["content+prior", "content"]
SCOPES: tuple[Scope, ...] = get_args(Scope)


class SSMax(nn.Module):
    """One temperature `scale` per head.

    Args:
        num_heads: query heads.
        init: the value every head starts from.
        learned: False freezes it.
        scope: what the factor multiplies, one of `SCOPES`.
    """

    def __init__(
        self,
        num_heads: int,
        init: float = 1.0,
        learned: bool = True,
        scope: Scope = "content+prior",
    ) -> None:
        """See the class."""
        super().__init__()
        if num_heads < 1:
            raise ValueError(f"num_heads must be a positive integer, not {num_heads!r}")
        if scope not in SCOPES:
            raise ValueError(f"unknown SSMax scope {scope!r}; choose one of {', '.join(SCOPES)}")
        self.num_heads = num_heads
        self.init = init
        self.scope: Scope = scope
        self.scale = nn.Parameter(torch.full((num_heads,), float(init)), requires_grad=learned)

    def extra_repr(self) -> str:
        """Shown by print(model)."""
        return f"num_heads={self.num_heads}, scope={self.scope!r}"


def temperature(scale: Tensor, num_visible: Tensor) -> Tensor:
    """`s[h] · ln n` for scale [H] and num_visible [B, T]: [B, H, T].

    A row that sees nothing counts as n = 1 (ln 1 = 0): its output is zero whatever the factor.
    """
    log_n = num_visible.clamp(min=1).to(scale.dtype).log()
    return scale[None, :, None] * log_n[:, None, :]
