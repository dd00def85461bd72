"""Scalable Softmax (Nakanishi 2025, arXiv 2501.19399): logits times `s · ln n`.

A softmax over n keys flattens as n grows. Multiplying the logits of query i by `s[h] · ln(n_i)`,
n_i the number of keys it sees, keeps a peak a peak. Two orders exist and differ as soon as a prior
is present:

    content+prior   (q·k/√d + B) · s ln n     what BAM publishes: the prior sharpens with length
    content          q·k/√d · s ln n + B      what its ALiBi baseline does

The prior of a local head gives weight to few keys, however many keys the head sees. Still, ln n
sharpens the head as the length grows. A horizon L, such as the training length, prevents this. With
H(n) the entropy of the prior over n keys, ln n becomes

    ln n                  up to n = L, as published
    ln L + H(n) - H(L)    beyond: ln n for the uniform prior, ln L for a local one
"""

from typing import Literal, get_args

import torch
from torch import Tensor, nn

from bayesattn.attention.log_temperature import LogTemperature
from bayesattn.attention.visibility import Visibility

LEAST = -700.0
"""Log-densities are clamped at this distance below the largest one; float64 holds its exp."""
Scope = Literal["content+prior", "content"]
SCOPES: tuple[Scope, ...] = get_args(Scope)


class SSMax(nn.Module):
    """One temperature `scale` per head.

    Args:
        num_heads: query heads.
        init: the value every head starts from.
        learned: False freezes it.
        scope: what the factor multiplies, one of `SCOPES`.
        horizon: a number of visible keys, such as the training length. Beyond it, further keys
            count only as far as the prior gives them weight. None counts all keys.
    """

    def __init__(
        self,
        num_heads: int,
        init: float = 1.0,
        learned: bool = True,
        scope: Scope = "content+prior",
        horizon: int | None = None,
    ) -> None:
        super().__init__()
        if num_heads < 1:
            raise ValueError(f"num_heads must be a positive integer, not {num_heads!r}")
        if scope not in SCOPES:
            raise ValueError(f"unknown SSMax scope {scope!r}; choose one of {', '.join(SCOPES)}")
        if horizon is not None and horizon < 1:
            raise ValueError(f"horizon must be 1 key or more, or None, not {horizon!r}")
        self.num_heads = num_heads
        self.init = init
        self.scope: Scope = scope
        self.horizon = horizon
        self.scale = nn.Parameter(torch.full((num_heads,), float(init)), requires_grad=learned)
        self.frozen = () if learned else ("scale",)

    def extra_repr(self) -> str:
        return f"num_heads={self.num_heads}, scope={self.scope!r}, horizon={self.horizon}"


AnyTemperature = SSMax | LogTemperature | Tensor | None


def temperatures(
    ssmax: AnyTemperature,
    table: Tensor | None,
    seen: Visibility,
    dtype: torch.dtype,
    device: torch.device,
) -> tuple[Tensor | None, Tensor | None]:
    """Factors [B or 1, H, T] of the content and of the prior; None for no factor.

    Args:
        ssmax: a module, or temperatures [H] that scale content and prior with the visible keys; a
            `LogTemperature` scales the content.
        table: log-prior [H, span] by distance; None if it is uniform.
        seen: which keys each query sees.
        dtype: of the factors.
        device: of the factors.
    """
    if ssmax is None:
        return None, None
    if isinstance(ssmax, LogTemperature):
        return ssmax.factor(seen.count(device), dtype), None
    if isinstance(ssmax, SSMax):
        scale, scope, horizon = ssmax.scale, ssmax.scope, ssmax.horizon
    else:
        scale, scope, horizon = ssmax, "content+prior", None
    if horizon is None or table is None or seen.span <= horizon:
        log_n = log_visible(seen.count(device), dtype)
    else:
        log_n = log_in_play(table, seen, horizon).to(dtype)
    factor = temperature(scale.to(dtype), log_n)
    return factor, None if scope == "content" else factor


def temperature(scale: Tensor, log_n: Tensor) -> Tensor:
    """`s[h] · ln n` for scale [H] and log_n [B, H or 1, T]: [B, H, T]."""
    return scale[None, :, None] * log_n


def log_visible(num_visible: Tensor, dtype: torch.dtype) -> Tensor:
    """[B, 1, T] `ln n` for num_visible [B, T].

    A row that sees nothing counts as n = 1 (ln 1 = 0): its output is zero for any factor.
    """
    return num_visible.clamp(min=1).to(dtype).log()[:, None, :]


def log_in_play(table: Tensor, seen: Visibility, horizon: int) -> Tensor:
    """[B or 1, H, T] `ln n` up to the horizon, `ln L + H(n) - H(L)` beyond, for a table [H, span].

    The L keys are the nearest ones, and those that are exempt from the prior.
    """
    near, exempt = seen.near_and_exempt(table.device)
    within = torch.minimum(near, (horizon - exempt).clamp(min=0))
    top = table.detach().amax(dim=1, keepdim=True)
    top = top.clamp(min=0) if seen.exempt else top  # exempt keys have log-density 0
    # With p = w / Σw, w = exp(t - top):  H = ln Σw - Σw(t - top) / Σw, both running sums
    drop = (table - top).double().clamp(min=LEAST)
    sums = torch.stack((drop.exp(), drop.exp() * drop)).cumsum(dim=2)
    sums = torch.cat((torch.zeros_like(sums[..., :1]), sums), dim=2)
    one = (-top).double().clamp(LEAST, 0.0)  # without exempt keys top may have any value
    exempted = torch.stack((one.exp(), one.exp() * one))[..., None] * exempt

    def entropy(count: Tensor) -> Tensor:
        mass, moment = (sums[:, :, count] + exempted).transpose(1, 2)  # each [B, H, T]
        empty = mass == 0
        mass = mass.masked_fill(empty, 1.0)
        return mass.log() - moment / mass

    log_n = log_visible(within + exempt, torch.float64)
    return (log_n + entropy(near) - entropy(within)).to(table.dtype)


def temperatures_under(
    ssmax: SSMax | LogTemperature | None, bias: Tensor | None, visible: Tensor, dtype: torch.dtype
) -> tuple[Tensor | None, Tensor | None]:
    """The same as `temperatures` for any mask [B, 1, T, S] and a log-prior [H, T, S]."""
    if ssmax is None:
        return None, None
    if isinstance(ssmax, LogTemperature):
        return ssmax.factor(visible.sum(dim=-1)[:, 0], dtype), None
    factor = temperature(ssmax.scale.to(dtype), log_seen(ssmax, bias, visible, dtype))
    return factor, None if ssmax.scope == "content" else factor


def log_seen(ssmax: SSMax, bias: Tensor | None, visible: Tensor, dtype: torch.dtype) -> Tensor:
    """[B, H or 1, T] as `log_in_play`, for any mask [B, 1, T, S] and a log-prior [H, T, S]."""
    count = visible.sum(dim=-1)[:, 0]
    if ssmax.horizon is None or bias is None:
        return log_visible(count, dtype)

    def entropy(where: Tensor) -> Tensor:
        prior = bias[None].masked_fill(~where, torch.finfo(bias.dtype).min).softmax(-1)
        prior = prior.masked_fill(~where, 0.0)
        return -(prior * prior.clamp(min=torch.finfo(prior.dtype).tiny).log()).sum(dim=-1)

    # the nearest ones, counted from the last
    within = visible & (visible.flip(-1).cumsum(-1).flip(-1) <= ssmax.horizon)
    log_n = log_visible(count.clamp(max=ssmax.horizon), dtype)
    return log_n + entropy(visible) - entropy(within)
