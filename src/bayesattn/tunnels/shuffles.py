"""Uniformly random orders of many rows at once, for everything that is drawn without replacement.

Whole orders are those that sort random numbers. Where only a few of many numbers are wanted, the
first different ones among independent draws are quicker to find, and as random.
"""

from functools import cache
from math import sqrt

import torch
from torch import Tensor

SMALL = 256
"""Up to this size, ties among 31-bit numbers are rare enough to draw again; beyond, 63 bits."""


def random_orders(
    rows: int, size: int, generator: torch.Generator, *, take: int | None = None
) -> Tensor:
    """[rows, take] int64: each row the start of a uniformly random order of 0 .. size-1.

    Args:
        rows: how many orders.
        size: how many numbers are ordered.
        generator: source of randomness.
        take: how many numbers of each order; all if None.
    """
    if take is not None and 2 * draws_for(take, size) <= size:
        return _first_different(rows, size, take, generator)
    if size == 1:
        return torch.zeros(rows, 1, dtype=torch.int64, device=generator.device)
    return _sorting_orders(rows, size, generator)[:, :take]


@cache
def draws_for(take: int, size: int) -> int:
    """How many draws from `size` nearly always give `take` different ones: five deviations more.

    >>> draws_for(64, 256)
    96
    """
    draws, different, variance = 0, 0.0, 1.0
    while draws < size and different - 5 * sqrt(variance) < take:
        draws += 8
        unseen, pair = size * (1 - 1 / size) ** draws, size * (size - 1) * (1 - 2 / size) ** draws
        different, variance = size - unseen, max(unseen + pair - unseen**2, 0.0)
    return draws


def _sorting_orders(rows: int, size: int, generator: torch.Generator) -> Tensor:
    """[rows, size] the orders that sort random numbers.

    Rows in which two numbers are equal would favour the lower index. They are drawn again, so that
    every order is exactly equally likely.
    """
    dtype, bits = (torch.int32, 31) if size <= SMALL else (torch.int64, 63)
    numbers = random_bits(rows, size, dtype, generator)
    numbers &= (1 << bits - (size - 1).bit_length()) - 1
    ranked, orders = numbers.sort(dim=1)
    tied = (ranked[:, 1:] == ranked[:, :-1]).any(1)
    if bool(tied.any()):
        orders[tied] = _sorting_orders(int(tied.sum()), size, generator)
    return orders


def _first_different(rows: int, size: int, take: int, generator: torch.Generator) -> Tensor:
    """[rows, take] the first different ones among independent draws.

    No value is special, so every order of every choice is equally likely. That also holds among
    the rows in which so many draws were enough; the other rows are drawn again.
    """
    drawn = _draws(rows, draws_for(take, size), size, generator)
    ranked, place = drawn.sort(dim=1, stable=True)
    repeated = torch.zeros_like(drawn, dtype=torch.bool)
    repeated.scatter_(1, place[:, 1:], ranked[:, 1:] == ranked[:, :-1])
    found = (~repeated).cumsum(1)
    # One column more than wanted takes all draws that do not count; it is cut off.
    column = (found - 1).masked_fill_(repeated, take).clamp_(max=take)
    orders = drawn.new_zeros(rows, take + 1).scatter_(1, column, drawn)[:, :take].long()
    short = found[:, -1] < take
    if bool(short.any()):
        orders[short] = _first_different(int(short.sum()), size, take, generator)
    return orders


def _draws(rows: int, draws: int, size: int, generator: torch.Generator) -> Tensor:
    """[rows, draws] independent numbers below `size`."""
    dtype = torch.uint8 if size <= 1 << 8 else torch.int16 if size <= 1 << 15 else torch.int64
    if size & (size - 1) == 0:  # a power of two: some of the random bits are such a number
        return random_bits(rows, draws, dtype, generator).bitwise_and_(size - 1)
    shape = (rows, draws)
    return torch.randint(size, shape, dtype=dtype, generator=generator, device=generator.device)


def random_bits(rows: int, columns: int, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """[rows, columns] integers, every bit of which is random."""
    words = -(-rows * columns * dtype.itemsize // 8)
    drawn = torch.empty(words, dtype=torch.int64, device=generator.device)
    drawn.random_(-(1 << 63), None, generator=generator)
    return drawn.view(dtype)[: rows * columns].view(rows, columns)
