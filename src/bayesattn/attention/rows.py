"""Attention of some rows only: queries that do not follow each other.

Rows i .. j-1 in sequence are one stretch: attention with offset i. Other rows are several
stretches.
"""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor


class Stretch(NamedTuple):
    """Rows that follow each other."""

    queries: slice
    """Places of the rows among the queries."""
    offset: int
    """Index of the first row among the keys."""


def stretches(rows: Sequence[int] | Tensor, queries: int, keys: int) -> list[Stretch]:
    """Cut the row indices into stretches without gaps."""
    if isinstance(rows, Tensor) and (rows.dim() != 1 or rows.is_floating_point()):
        raise ValueError(
            f"rows must be integer indices [queries], not {rows.dtype} {tuple(rows.shape)}"
        )
    found = [int(row) for row in rows]
    if len(found) != queries:
        raise ValueError(f"{len(found)} rows for {queries} queries: each query needs its index")
    cuts = [n for n in range(1, queries) if found[n] != found[n - 1] + 1]
    if min(found) < 0 or max(found) >= keys:
        raise ValueError(f"rows must lie between 0 and {keys - 1}, the last key, not {found}")
    if any(found[n] <= found[n - 1] for n in cuts):
        raise ValueError(f"rows must be in increasing order, each once, not {found}")
    bounds = zip([0, *cuts], [*cuts, queries], strict=True)
    return [Stretch(slice(start, stop), found[start]) for start, stop in bounds]
