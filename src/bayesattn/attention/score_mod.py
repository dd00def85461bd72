"""Scores as a function of query and key index, with the signature of FlexAttention.

    score_mod(score, b, h, q_idx, kv_idx) -> score

`of_terms` puts prior, temperature and forget gates into this form, and calls the user's function
last. `vmapped` evaluates such a function, which is written for one score, on all scores.
"""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from bayesattn.attention.terms import ScoreMod, Terms


def of_terms(terms: Terms, batch: int, dtype: torch.dtype) -> ScoreMod | None:
    """The score_mod that adds `terms` to scale · q·k; queries count from 0. None if no change."""
    table, temper, decay, seen = terms.table, terms.temper, terms.decay, terms.seen
    user, offset, exempt = terms.score_mod, seen.offset, seen.exempt
    if table is None and decay is None and user is None:
        return None
    table = None if table is None else table.contiguous()
    last = 0 if table is None else table.shape[1] - 1
    temper = None if temper is None else temper.expand(batch, -1, -1).contiguous()
    first = None if seen.first is None else seen.first.contiguous()
    if decay is None:
        sums: list[Tensor] = []
    elif dtype == torch.float64:
        sums = [decay]
    else:  # two float32 numbers, since the small difference of large sums is wanted
        rounded = decay.detach().float()
        sums = [rounded, (decay - rounded).float()]

    def score_mod(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        place = i + offset
        bias = None if table is None else table[h, (place - j).clamp(0, last)]
        for c in sums:
            gone = c[b, h, place] - c[b, h, j]
            bias = gone if bias is None else bias + gone
        if bias is not None:
            if temper is not None:
                bias = bias * temper[b, h, i]
            if exempt:
                limit = exempt if first is None else first[b, i] + exempt
                bias = torch.where(j < limit, 0.0, bias)
            score = score + bias
        return score if user is None else user(score, b, h, place, j)

    return score_mod


def modify(mod: ScoreMod, scores: Tensor, i: Tensor) -> Tensor:
    """Changed scores [B, H, R, S] of queries at indices i [R]: the definition."""
    sizes = (scores.shape[0], scores.shape[1], scores.shape[3])
    b, h, j = (torch.arange(n, device=scores.device) for n in sizes)
    return vmapped(mod, scores, b, h, i, j).to(scores.dtype)


def vmapped(mod: ScoreMod, scores: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
    call: Callable[..., Tensor] = mod
    for axis in (3, 2, 1, 0):
        dims = tuple(0 if n == axis else None for n in range(4))
        call = torch.vmap(call, in_dims=(0, *dims))
    with _Lookup():
        return call(scores, b, h, i, j)


class _Lookup(TorchFunctionMode):
    """Reads tensors at vmap's indices, which torch would otherwise convert to numbers."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is torch.Tensor.__getitem__:
            x, at = args
            places = cast(tuple[Any, ...], at if isinstance(at, tuple) else (at,))
            if all(isinstance(n, Tensor | int) for n in places):
                index = [torch.as_tensor(n, device=x.device) for n in places]
                return torch.ops.aten.index(x, index)
        return func(*args, **(kwargs or {}))
