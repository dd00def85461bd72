"""Random orders of many rows at once: the inner loop of every sampler without replacement.

Random numbers are most of the work, so as few as possible are drawn, and raw: torch hands out 64
random bits in less time than one number below a given bound. Numpy sorts many times faster than
torch's argsort, so what is sorted carries the answer in its lowest bits. Of large batches the first
different ones are picked by a compiled loop instead, if numba is installed: the same ones, sooner.
"""

from functools import cache
from math import sqrt
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesattn.tunnels.compiled import compiled

SMALL = 256
"""Up to this size, ties among 32-bit numbers are rare enough to redraw; beyond, 64 bits."""


def random_orders(
    rows: int,
    size: int,
    generator: torch.Generator,
    *,
    take: int | None = None,
    first: int = 0,
    out: Tensor | None = None,
) -> Tensor:
    """[rows, take]: each row the beginning of a uniformly random order of `size` numbers.

    Args:
        rows: how many.
        size: of the orders.
        generator: of the random numbers.
        take: how many numbers of each; all if None.
        first: the least number.
        out: what they are written into; fresh int64 if None.
    """
    dtype = torch.int64 if out is None else out.dtype
    if take is not None and 2 * draws_for(take, size) <= size:
        if out is None:
            out = torch.empty(rows, take, dtype=dtype, device=generator.device)
        _draw_distinct(size, generator, first, out)
        return out
    if size == 1:
        orders = torch.zeros(rows, 1, dtype=dtype, device=generator.device)
    else:
        orders = _sorted_numbers(rows, size, generator)[:, :take].to(dtype)
    if first:
        orders += first
    return orders if out is None else out.copy_(orders)


@cache
def draws_for(take: int, size: int) -> int:
    """So many draws from `size` that fewer than `take` different ones are a rare accident.

    >>> draws_for(64, 256)
    96
    """
    draws, different, variance = 0, 0.0, 1.0
    while draws < size and different - 5 * sqrt(variance) < take:
        draws += 8
        unseen, pair = size * (1 - 1 / size) ** draws, size * (size - 1) * (1 - 2 / size) ** draws
        different, variance = size - unseen, max(unseen + pair - unseen**2, 0.0)
    return draws


def _sorted_numbers(rows: int, size: int, generator: torch.Generator) -> Tensor:
    """[rows, size] whole orders, those of random numbers.

    Rows in which two numbers tie would favour the lower index; they are drawn again, so that every
    order is exactly equally likely.
    """
    bits = (size - 1).bit_length()
    dtype, most = (torch.int32, (1 << 31) - 1) if size <= SMALL else (torch.int64, (1 << 63) - 1)
    index = torch.arange(size, dtype=dtype, device=generator.device)
    packed = random_bits(rows, size, dtype, generator)
    packed = _sorted(packed.bitwise_left_shift_(bits).bitwise_or_(index).bitwise_and_(most))
    # Neighbours that differ in the index bits only: the least of a row's differences is enough.
    tied = (packed[:, 1:] ^ packed[:, :-1]).amin(1) < (1 << bits)
    orders = packed.bitwise_and_((1 << bits) - 1)
    again = int(tied.sum())
    if again:
        orders[tied] = _sorted_numbers(again, size, generator)
    return orders


def _draw_distinct(size: int, generator: torch.Generator, first: int, out: Tensor) -> None:
    """Write the first different ones among independent draws.

    No value is special, so every order of every choice is equally likely; that holds also among the
    rows in which so many draws were enough, and the others are drawn again.
    """
    rows, take = out.shape
    drawn = _draws(rows, draws_for(take, size), size, generator)
    loop = compiled(pick_first_distinct, out)
    if loop is None:
        orders, short = _by_sorting(drawn, size, take)
        torch.add(orders.to(out.dtype), first, out=out)
    else:
        short = torch.as_tensor(loop(drawn.numpy(), size, first, out.numpy()))
    again = int(short.sum())
    if again:
        fresh = torch.empty(again, take, dtype=out.dtype, device=out.device)
        _draw_distinct(size, generator, first, fresh)
        out[short] = fresh


def _draws(rows: int, draws: int, size: int, generator: torch.Generator) -> Tensor:
    """[rows, draws] independent numbers below `size`, in a short type."""
    dtype = torch.uint8 if size <= 1 << 8 else torch.int16 if size <= 1 << 15 else torch.int64
    if size & (size - 1) == 0:
        return random_bits(rows, draws, dtype, generator).bitwise_and_(size - 1)
    shape = (rows, draws)
    return torch.randint(size, shape, dtype=dtype, generator=generator, device=generator.device)


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


def _by_sorting(drawn: Tensor, size: int, take: int) -> tuple[Tensor, Tensor]:
    """The first different ones of each row; and where they are too few, so that it says nothing."""
    draws = drawn.shape[1]
    value_bits, place_bits = (size - 1).bit_length(), (draws - 1).bit_length()
    used = value_bits + place_bits
    dtype = torch.int16 if used < 16 else torch.int32 if used < 32 else torch.int64
    place = torch.arange(draws, dtype=dtype, device=drawn.device)
    # By value, then by place: what equals its left neighbour was drawn before.
    packed = _sorted(drawn.to(dtype).bitwise_left_shift_(place_bits).bitwise_or_(place))
    value = packed.bitwise_right_shift(place_bits)
    new = torch.ones_like(value)
    torch.ne(value[:, 1:], value[:, :-1], out=new[:, 1:])
    # By place, new ones first: the sign says which.
    packed.bitwise_and_((1 << place_bits) - 1).bitwise_left_shift_(value_bits).bitwise_or_(value)
    packed = _sorted(packed.bitwise_xor_(new.neg_().bitwise_left_shift_(used)))
    return packed[:, :take].bitwise_and((1 << value_bits) - 1), packed[:, take - 1] >= 0


def random_bits(rows: int, columns: int, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """[rows, columns] integers, every bit of which is random."""
    words = -(-rows * columns * dtype.itemsize // 8)
    drawn = torch.empty(words, dtype=torch.int64, device=generator.device)
    drawn.random_(-(1 << 63), None, generator=generator)
    return drawn.view(dtype)[: rows * columns].view(rows, columns)


def _sorted(values: Tensor) -> Tensor:
    if values.device.type != "cpu":
        return values.sort(dim=1).values
    values.numpy().sort(axis=1)  # in place: the array shares the tensor's memory
    return values
