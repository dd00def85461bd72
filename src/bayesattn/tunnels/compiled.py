"""Loops that numba compiles, if it is installed: `pip install 'bayesattn[fast]'`.

Nothing depends on it but time: what a loop finds is what tensor operations find. The loops trust
their arguments, so they are given only what a sampler has drawn itself.
"""

from collections.abc import Callable
from functools import cache
from typing import ParamSpec, TypeVar

from torch import Tensor

P = ParamSpec("P")
R = TypeVar("R")

MANY = 1024
"""From so many rows on a loop is compiled; importing numba and compiling take a second."""


def compiled(loop: Callable[P, R], rows: Tensor) -> Callable[P, R] | None:
    """`loop`, compiled for `rows`; None without numba, if they are few, or not on a CPU."""
    return _compile(loop) if len(rows) >= MANY and rows.device.type == "cpu" else None


@cache
def has_numba() -> bool:
    """Whether loops can be compiled."""
    try:
        import numba  # pyright: ignore # noqa: F401
    except ImportError:
        return False
    return True


@cache
def _compile(loop: Callable[P, R]) -> Callable[P, R] | None:
    if not has_numba():
        return None
    from numba import njit  # pyright: ignore

    return njit(nogil=True)(loop)  # pyright: ignore
