"""Log forget gates in a cache of keys, so every kind of cache keeps them.

    [B, G, T, D] keys and [B, H, T] gates  ->  [B, G, T, D + n · H/G]

A key head serves H/G query heads. Their gates are the last columns of the key, so dynamic, static
and sliding caches, reordering of beams and moves between devices treat them as parts of the key.
Gates are float32. In a half-precision cache a gate is the exact sum of n = 3 numbers.
"""

import torch
from torch import Tensor


def with_gates(k: Tensor, gates: Tensor) -> Tensor:
    """Keys with their gates as last columns, in the dtype of the keys."""
    rest = gates.unflatten(1, (k.shape[1], -1)).transpose(2, 3)  # [B, G, T, H/G]
    columns: list[Tensor] = []
    for _ in range(_parts(k.dtype)):
        columns.append(rest.to(k.dtype))
        rest = rest - columns[-1]
    return torch.cat([k, *columns], dim=-1)


def split_gates(k: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Keys [B, G, S, D] and gates [B, H, S] from the tensor of a cache."""
    wide = torch.promote_types(k.dtype, torch.float32)
    columns = k[..., width:].to(wide).unflatten(-1, (_parts(k.dtype), -1)).sum(-2)
    return k[..., :width], columns.transpose(2, 3).flatten(1, 2)


def _parts(dtype: torch.dtype) -> int:
    return 1 if torch.finfo(dtype).bits >= 32 else 3
