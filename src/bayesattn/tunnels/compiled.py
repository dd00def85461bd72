"""A loop that numba compiles, if it is installed: `pip install 'bayesattn[fast]'`.

Nothing depends on it but time: what it finds is what sorting finds. It is imported only when
asked for, since importing and compiling take a second.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Loop = Callable[[NDArray[Any], int, int, NDArray[Any]], NDArray[np.bool_]]


@cache
def first_distinct() -> Loop | None:
    """`pick_first_distinct`, compiled; None without numba."""
    try:
        from numba import njit  # pyright: ignore
    except ImportError:
        return None
    return njit(nogil=True)(pick_first_distinct)  # pyright: ignore


def pick_first_distinct(
    drawn: NDArray[Any], size: int, first: int, orders: NDArray[Any]
) -> NDArray[np.bool_]:
    """Write the first different numbers of each row of `drawn`, all below `size`, into `orders`.

    `first` is added to them. Returns which rows have too few.
    """
    rows, take = orders.shape
    seen = np.zeros(size, np.bool_)
    short = np.zeros(rows, np.bool_)
    for row in range(rows):
        seen[:] = False
        found = 0
        for number in drawn[row]:
            orders[row, found] = first + number  # the next is written over it if it is old
            found += not seen[number]
            seen[number] = True
            if found == take:
                break
        short[row] = found < take
    return short
