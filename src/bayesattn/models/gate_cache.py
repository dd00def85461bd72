"""Log forget gates in a cache of keys, so that every kind of cache keeps them.

    [B, G, T, D] keys and [B, H, T] gates  ->  [B, G, T, D + n · H/G]

A key head serves H/G query heads, whose gates are its last columns: caches that grow, are static,
slide, are reordered for beams or moved to another device treat them like any part of a key. Gates
are float32; in a half-precision cache each is the sum of n = 3 numbers, which is the same number.
"""

import torch
from torch import Tensor


def with_gates(k: Tensor, gates: Tensor) -> Tensor:
    """Keys with their gates behind them, in the dtype of the keys."""
    rest = gates.unflatten(1, (k.shape[1], -1)).transpose(2, 3)  # [B, G, T, H/G]
    columns: list[Tensor] = []
    for _ in range(_parts(k.dtype)):
        columns.append(rest.to(k.dtype))
        rest = rest - columns[-1]
    return torch.cat([k, *columns], dim=-1)


def split_gates(k: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Keys [B, G, S, D] and gates [B, H, S] of what a cache returned."""
    wide = torch.promote_types(k.dtype, torch.float32)
    columns = k[..., width:].to(wide).unflatten(-1, (_parts(k.dtype), -1)).sum(-2)
    return k[..., :width], columns.transpose(2, 3).flatten(1, 2)


def _parts(dtype: torch.dtype) -> int:
    return 1 if torch.finfo(dtype).bits >= 32 else 3
