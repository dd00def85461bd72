"""Walks along a partly known permutation.

    P(y, 0, D) = all on y
    P(y, k, D) = P(D[y], k-1, D)                                        if y is a known key,
                 mean over unused values v of P(v, k-1, D + {y: v})     otherwise

Without recursion: every order in which a walk may use the unused values is equally likely, and the
j-th unknown key on the walk gets the j-th value of the order. After a walk has closed a cycle it
meets no unknown key, so the rest of its order has no effect.

Shapes: B sequences, V symbols, W orders of the unused values.
"""

import itertools
import math
from functools import cache

import torch
from torch import Tensor

MOST_ORDERS = 50_000
"""Largest number of orders over which a posterior is averaged."""


def count_orders(unused: int, hops: int) -> int:
    """Number of orders of values along a walk; its first key is known."""
    return math.perm(unused, min(unused, hops - 1))


@cache
def orders_of(unused: int, hops: int) -> Tensor:
    """[W, M] int64: the orders, as indices into the unused values. Do not write to it."""
    taken = min(unused, hops - 1)
    if taken == 0:
        return torch.zeros(1, 1, dtype=torch.int64)  # a single walk without unknown keys
    return torch.tensor(list(itertools.permutations(range(unused), taken)))


def walk(known: Tensor, start: Tensor, hops: int, orders: Tensor) -> Tensor:
    """[B, W, hops + 1] symbols after 0 .. hops hops, one walk for every order.

    Args:
        known: [B, V] the value of each key, -1 where it is unknown.
        start: [B] first symbols.
        hops: number of hops.
        orders: [W, M] indices into the unused values, in rising order of those.
    """
    values = unused_values(known)[:, orders.to(known.device)]
    successor = known[:, None].repeat(1, len(orders), 1)
    current = start[:, None].expand(values.shape[:2])
    met = torch.zeros_like(current)
    path = [current]
    for _ in range(hops):
        following = successor.gather(2, current[..., None])
        unknown = following < 0
        new = values.gather(2, met.clamp(max=orders.shape[1] - 1)[..., None])
        following = torch.where(unknown, new, following)
        successor.scatter_(2, current[..., None], following)
        met = met + unknown[..., 0]
        current = following[..., 0]
        path.append(current)
    return torch.stack(path, dim=2)


def belief(symbols: Tensor, possible: Tensor, outcomes: int) -> Tensor:
    """[B, outcomes] float64: share of the possible walks that are at each symbol [B, W]."""
    weight = possible.double()
    weight = weight / weight.sum(1, keepdim=True)
    return weight.new_zeros(len(symbols), outcomes).scatter_add_(1, symbols, weight)


def next_symbol(known: Tensor, current: Tensor, outcomes: int) -> Tensor:
    """[B, outcomes] float64: the value of `current` [B], or uniform over the unused ones."""
    value = known.gather(1, current[:, None])
    unused = (~used_values(known)).double()
    unused = torch.nn.functional.pad(unused, (0, outcomes - known.shape[1]))
    certain = torch.zeros_like(unused).scatter_(1, value.clamp(min=0), 1.0)
    return torch.where(value >= 0, certain, unused / unused.sum(1, keepdim=True).clamp(min=1))


def used_values(known: Tensor) -> Tensor:
    """[B, V] whether a symbol is the value of a known key."""
    size = known.shape[1]
    return (known[:, :, None] == torch.arange(size, device=known.device)).any(1)


def unused_values(known: Tensor) -> Tensor:
    """[B, V]: the unused values in rising order, then the used ones."""
    return used_values(known).long().argsort(dim=1, stable=True)
