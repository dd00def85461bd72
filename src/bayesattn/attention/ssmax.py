"""Scalable Softmax (Nakanishi 2025, arXiv 2501.19399): logits times `s · ln n`.

A softmax over n keys flattens as n grows. Multiplying the logits of query i by `s[h] · ln(n_i)`,
n_i the number of keys it sees, keeps a peak a peak. Two orders exist and differ as soon as a prior
is present:

    content+prior   (q·k/√d + B) · s ln n     what BAM publishes: the prior sharpens with length
    content          q·k/√d · s ln n + B      what its ALiBi baseline does

A head whose prior is local sees as many keys as any other, but few of them matter to it, and it has
nothing to be sharpened against. Two ways to count:

    visible         n_i is the number of keys                       as published
    effective       ln n_i is the entropy of the prior over them    local heads stay as they are

which agree for the uniform prior.
"""

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from bayesattn.attention.visibility import Visibility

Scope = Literal["content+prior", "content"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
Count = Literal["visible", "effective"]
COUNTS: tuple[Count, ...] = get_args(Count)


class SSMax(nn.Module):
    """One temperature `scale` per head.

    Args:
        num_heads: query heads.
        init: the value every head starts from.
        learned: False freezes it.
        scope: what the factor multiplies, one of `SCOPES`.
        count: which keys count, one of `COUNTS`.
    """

    def __init__(
        self,
        num_heads: int,
        init: float = 1.0,
        learned: bool = True,
        scope: Scope = "content+prior",
        count: Count = "visible",
    ) -> None:
        """See the class."""
        super().__init__()
        if num_heads < 1:
            raise ValueError(f"num_heads must be a positive integer, not {num_heads!r}")
        if scope not in SCOPES:
            raise ValueError(f"unknown SSMax scope {scope!r}; choose one of {', '.join(SCOPES)}")
        if count not in COUNTS:
            raise ValueError(f"unknown SSMax count {count!r}; choose one of {', '.join(COUNTS)}")
        self.num_heads = num_heads
        self.init = init
        self.scope: Scope = scope
        self.count: Count = count
        self.scale = nn.Parameter(torch.full((num_heads,), float(init)), requires_grad=learned)

    def extra_repr(self) -> str:
        """Shown by print(model)."""
        return f"num_heads={self.num_heads}, scope={self.scope!r}, count={self.count!r}"


def temperatures(
    ssmax: SSMax | Tensor | None,
    table: Tensor | None,
    seen: Visibility,
    dtype: torch.dtype,
    device: torch.device,
) -> tuple[Tensor | None, Tensor | None]:
    """Factors [B or 1, H, T] of the content and of the prior; None where there are none.

    Args:
        ssmax: a module, or temperatures [H] that scale content and prior with the visible keys.
        table: log-prior [H, span] by distance; None if it is uniform.
        seen: which keys each query sees.
        dtype: of the factors.
        device: of the factors.
    """
    if ssmax is None:
        return None, None
    module = ssmax if isinstance(ssmax, SSMax) else None
    scale = (ssmax.scale if isinstance(ssmax, SSMax) else ssmax).to(dtype)
    if module is None or module.count == "visible" or table is None:
        log_n = log_visible(seen.count(device), dtype)
    else:
        log_n = log_effective(table, seen).to(dtype)
    factor = temperature(scale, log_n)
    return factor, None if module is not None and module.scope == "content" else factor


def temperature(scale: Tensor, log_n: Tensor) -> Tensor:
    """`s[h] · ln n` for scale [H] and log_n [B, H or 1, T]: [B, H, T]."""
    return scale[None, :, None] * log_n


def log_visible(num_visible: Tensor, dtype: torch.dtype) -> Tensor:
    """[B, 1, T] `ln n` for num_visible [B, T].

    A row that sees nothing counts as n = 1 (ln 1 = 0): its output is zero whatever the factor.
    """
    return num_visible.clamp(min=1).to(dtype).log()[:, None, :]


def log_effective(table: Tensor, seen: Visibility) -> Tensor:
    """[B or 1, H, T] entropy of the prior over the keys each query sees, for a table [H, span].

    Joining one more key, with a share p of all, gives H' = (1 - p) H + h(p), h the entropy of a
    coin. So Z·H is a running sum of Z·h(p), Z that of the density. Both are kept as logarithms: a
    prior may leave most keys with nothing that a float could hold.
    """
    wide = table.double()
    mass = wide.logcumsumexp(dim=1)
    joining = mass[:, 1:] + _coin(wide[:, 1:] - mass[:, 1:], mass[:, :-1] - mass[:, 1:]).log()
    entropy = (joining.logcumsumexp(dim=1) - mass[:, 1:]).exp()
    entropy = torch.cat((torch.zeros_like(mass[:, :1]), entropy), dim=1)  # one key has none
    near, exempt = seen.near_and_exempt(table.device)
    index = (near - 1).clamp(min=0)
    mass, entropy = (sums[:, index].transpose(0, 1) for sums in (mass, entropy))  # [B, H, T]
    if seen.exempt:  # so many keys of density 1 join all at once
        others = exempt[:, None].clamp(min=1).double().log()
        total = torch.logaddexp(mass, others)
        kept, joined = mass - total, others - total
        both = kept.exp() * entropy + joined.exp() * others + _coin(joined, kept)
        both = torch.where((near == 0)[:, None], others, both)
        entropy = torch.where((exempt == 0)[:, None], entropy, both)
    return entropy.to(table.dtype)


def _coin(log_p: Tensor, log_rest: Tensor) -> Tensor:
    """Entropy of two shares that add up to 1, just above 0 at the least."""
    entropy = -(log_p.exp() * log_p + log_rest.exp() * log_rest)
    return entropy.clamp(min=torch.finfo(entropy.dtype).tiny)
