"""Which columns of one tensor are which of another, bit by bit.

The layout of a fused projection is not assumed but read off: the columns of what it puts out are
compared with what reaches the cache.
"""

from collections import defaultdict

import torch
from torch import Tensor

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def match_columns(wanted: Tensor, among: Tensor) -> Tensor | None:
    """[G, D] for each column of `wanted` [rows, G, D] the equal one of `among` [rows, W], or None.

    No column is taken twice. Where several are equal, as dead ones are, the neighbour of the column
    before is taken.
    """
    places: dict[bytes, list[int]] = defaultdict(list)
    for column, bits in enumerate(_bits(among)):
        places[bits].append(column)
    found: list[int] = []
    taken: set[int] = set()
    for bits in _bits(wanted.flatten(1)):
        candidates = [column for column in places.get(bits, ()) if column not in taken]
        if not candidates:
            return None
        neighbour = found[-1] + 1 if found else 0
        found.append(neighbour if neighbour in candidates else candidates[0])
        taken.add(found[-1])
    return torch.tensor(found).view(wanted.shape[1:])


def distinct_heads(heads: Tensor) -> list[int]:
    """The first of each set of equal heads [rows, G, D]: some models repeat heads for the cache."""
    first: dict[bytes, int] = {}
    for head in range(heads.shape[1]):
        (bits,) = _bits(heads[:, head].reshape(-1, 1))
        first.setdefault(bits, head)
    return list(first.values())


def _bits(columns: Tensor) -> list[bytes]:
    """Bytes of each column of a matrix."""
    # 0 is added because -0 equals 0
    rows = (columns.detach().cpu() + 0.0).T.contiguous()
    return [row.tobytes() for row in rows.view(_BITS[rows.element_size()]).numpy()]
