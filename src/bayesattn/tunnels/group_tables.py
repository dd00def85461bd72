"""Finite groups as tables: who follows whom, and what each element does to points.

table[a, b] = a·b, first b and then a          action[a, j] = a j,  (a·b) j = a (b j)
"""

import itertools
import math
import re
from dataclasses import dataclass
from functools import cache, cached_property

import torch
from torch import Tensor

LARGEST = 6
"""S6 has 720 elements; S7 would have 5,040, each of them a token."""


@dataclass(frozen=True)
class Group:
    """n elements that act on points. Make one with `make_group`, which checks what it is given.

    Args:
        table: [n, n] products.
        action: [n, points].
    """

    table: Tensor
    action: Tensor

    @property
    def order(self) -> int:
        return len(self.table)

    @property
    def points(self) -> int:
        return self.action.shape[1]

    @cached_property
    def identity(self) -> int:
        """The element that changes nothing."""
        return int((self.table == torch.arange(self.order)).all(1).nonzero()[0])

    @cached_property
    def inverses(self) -> Tensor:
        """[n] the inverse of each element."""
        return (self.table == self.identity).long().argmax(1)

    @cached_property
    def generators(self) -> list[int]:
        """Elements that make all others, each of them one that those before it do not make."""
        found: list[int] = []
        made = {self.identity}
        for element in range(self.order):
            if element not in made:
                found.append(element)
                made = self._made_by(found)
        return found

    def _made_by(self, elements: list[int]) -> set[int]:
        made = new = {self.identity}
        while new:
            new = {int(self.table[a, b]) for a in elements for b in new} - made
            made = made | new
        return made


@cache
def make_group(name: str) -> Group:
    """S5, all orders of five points; Z5, their rotations; or the rows of a multiplication table.

    A table is written as "0 1 2; 1 2 0; 2 0 1" and acts on its own elements.
    """
    if match := re.fullmatch(r"([SZ])(\d+)", name):
        kind, size = match[1], int(match[2])
        if not 2 <= size <= (LARGEST if kind == "S" else math.factorial(LARGEST)):
            raise ValueError(
                f"group {name} is too small or too large: choose S2 to S{LARGEST} or "
                f"Z2 to Z{math.factorial(LARGEST)}"
            )
        return _symmetric(size) if kind == "S" else _cyclic(size)
    if not re.fullmatch(r"\s*\d+([\s;]+\d+)*\s*", name):
        raise ValueError(
            f"group must be S5, Z5 or the like, or rows of a multiplication table such as "
            f"'0 1; 1 0', not {name!r}"
        )
    rows = [[int(entry) for entry in row.split()] for row in name.split(";")]
    table = check_table(rows)
    return Group(table, table)


def check_table(rows: list[list[int]]) -> Tensor:
    """[n, n] the multiplication table, refused in one sentence if it is not that of a group."""
    size = len(rows)
    if any(len(row) != size for row in rows) or size < 2:
        raise ValueError("a multiplication table has as many columns as rows, at least two")
    table = torch.tensor(rows)
    if not bool(((table >= 0) & (table < size)).all()):
        raise ValueError(f"this is not a group: products must be elements, 0 to {size - 1}")
    elements = torch.arange(size)
    neutral = (table == elements).all(1) & (elements == table.T).all(1)
    if not bool(neutral.any()):
        raise ValueError("this is not a group: no element leaves all others as they are")
    for lines in (table, table.T):
        if not bool((lines.sort(1).values == elements).all()):
            raise ValueError("this is not a group: an element has no inverse")
    left, right = table[table], table[:, table]
    if not torch.equal(left, right):
        a, b, c = (int(entry) for entry in (left != right).nonzero()[0])
        raise ValueError(f"this is not a group: ({a}·{b})·{c} is not {a}·({b}·{c})")
    return table


def _symmetric(size: int) -> Group:
    """All orders of the points, in lexical order, so that the identity is the first."""
    action = torch.tensor(list(itertools.permutations(range(size))))
    digits = size ** torch.arange(size - 1, -1, -1)  # an order, read as a number, rises
    products = action[:, action]  # [a, b, j] = a (b j)
    table = torch.searchsorted((action * digits).sum(1), (products * digits).sum(2))
    return Group(table, action)


def _cyclic(size: int) -> Group:
    elements = torch.arange(size)
    table = (elements[:, None] + elements) % size
    return Group(table, table)
