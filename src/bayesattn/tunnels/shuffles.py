"""Random orders of many rows at once: the inner loop of every sampler without replacement."""

import torch
from torch import Tensor

SMALL = 256
"""Up to this size, ties among 32-bit numbers are rare enough to redraw; beyond, 64 bits."""


def random_orders(
    rows: int, size: int, generator: torch.Generator, *, take: int | None = None
) -> Tensor:
    """[rows, take] int64: each row the beginning of a uniformly random order of 0 .. size-1.

    Sorts random numbers that carry their index in the lowest bits, which numpy does many times
    faster than torch's argsort. Rows in which two random numbers tie would favour the lower
    index; they are drawn again, so that every order is exactly equally likely.
    """
    if size == 1:
        return torch.zeros(rows, 1, dtype=torch.int64, device=generator.device)
    bits = (size - 1).bit_length()
    dtype, free = (torch.int32, 31) if size <= SMALL else (torch.int64, 63)
    index = torch.arange(size, dtype=dtype, device=generator.device)
    packed = torch.randint(
        1 << (free - bits), (rows, size), dtype=dtype, generator=generator, device=generator.device
    )
    packed = _sorted(packed.bitwise_left_shift_(bits).bitwise_or_(index))
    # Neighbours that differ in the index bits only: the least of a row's differences is enough.
    tied = (packed[:, 1:] ^ packed[:, :-1]).amin(1) < (1 << bits)
    orders = (packed[:, :take] & ((1 << bits) - 1)).long()
    again = int(tied.sum())
    if again:
        orders[tied] = random_orders(again, size, generator, take=take)
    return orders


def _sorted(values: Tensor) -> Tensor:
    if values.device.type != "cpu":
        return values.sort(dim=1).values
    values.numpy().sort(axis=1)  # in place: the array shares the tensor's memory
    return values
