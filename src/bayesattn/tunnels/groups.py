"""Belief that has to be moved: track a point under known actions and noisy readings.

    x_0 uniform,   x_t = a_t x_{t-1},   o_t = x_t with probability r, else any other point

    belief_t(j) ∝ P(o_t | j) · belief_{t-1}(a_t⁻¹ j)

With g_t = a_t … a_1, every reading is one of x_0 = g_t⁻¹ x_t: the belief is a count of readings,
moved by g_t. All that is serial is the product g_t. In S5 it needs ever more depth as it gets
longer, in Z5 it is a sum, which one layer of attention can take; format, number of readings and
their information are the same in both. `scratch` is what stands beside each step:

    none       a_t o_t
    product    a_t g_t o_t     g_t is predicted at a_t, the belief at o_t
    argmax     a_t o_t m_t     m_t is the most probable point, read off the belief at o_t
    filler     a_t  .  o_t

A group is two tables: table[a, b] = a·b, first b and then a, and action[a, j] = a j, with
(a·b) j = a (b j).
"""

import itertools
import math
import re
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad

from bayesattn.checks import fields_at_least, one_of
from bayesattn.tunnels.base import Batch, Shape, Tunnel
from bayesattn.tunnels.sampling import integers, uniform

Scratch = Literal["none", "product", "argmax", "filler"]
Actions = Literal["all", "generators"]
TIED = 1e-9
"""Beliefs that differ by less are equally probable, and the first of them counts as the largest."""
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


class Tracked(NamedTuple):
    """What follows from actions and readings."""

    products: Tensor
    """[B, T] g_t."""
    beliefs: Tensor
    """[B, T, points]."""


@dataclass(frozen=True)
class GroupFilter(Tunnel, name="group"):
    """A hidden point, moved by known elements of a group.

    Args:
        group: S5, Z5 and the like, or rows of a multiplication table such as "0 1; 1 0".
        length: Number of steps.
        reliability: Probability that a reading is right.
        scratch: What stands beside each step: none, product, argmax or filler.
        actions: Elements that act: all, or only generators and the identity.
    """

    group: str = "S5"
    length: int = 8
    reliability: float = 0.8
    scratch: Scratch = "none"
    actions: Actions = "all"

    def __post_init__(self) -> None:
        make_group(self.group)
        fields_at_least(self, length=1)
        if not 0 < self.reliability <= 1:
            raise ValueError(f"reliability must lie in 0 … 1, 0 excluded, not {self.reliability}")
        one_of("scratch", self.scratch, get_args(Scratch))
        one_of("actions", self.actions, get_args(Actions))

    @property
    def shape(self) -> Shape:
        """Outcomes are points; where products are predicted, elements, the first for points too."""
        group, steps = self._group, range(0, self._width * self.length, self._width)
        outcomes = max(group.points, group.order) if self.scratch == "product" else group.points
        own = {"none": 0, "product": group.order, "argmax": group.points, "filler": 1}
        predicted = (0, self._reading_at) if self.scratch == "product" else (self._reading_at,)
        return Shape(
            outcomes,
            len(steps) * self._width - (self.scratch == "argmax"),  # nobody reads the last one
            [step + place for step in steps for place in predicted],
            vocabulary=self._first_scratch + own[self.scratch],
        )

    @property
    def written(self) -> Tensor:
        """Positions that a model writes itself, each predicted at the position before it."""
        steps = self._width * torch.arange(self.length)
        if self.scratch == "product":
            return steps + 1
        return steps[:-1] + 2 if self.scratch == "argmax" else steps[:0]

    @property
    def allowed(self) -> Tensor:
        """Elements that act."""
        group = self._group
        if self.actions == "all":
            return torch.arange(group.order)
        return torch.tensor(sorted({group.identity, *group.generators}))

    def sample(self, batch_size: int, generator: torch.Generator) -> Batch:
        group, device, shape = self._group, generator.device, (batch_size, self.length)
        allowed = self.allowed.to(device)
        actions = allowed[integers(len(allowed), shape, generator)]
        first = integers(group.points, (batch_size, 1), generator)
        states = group.action.to(device)[prefix_products(group, actions), first]
        wrong = uniform(shape, generator) >= self.reliability
        others = 1 + integers(group.points - 1, shape, generator)
        readings = (states + others * wrong) % group.points
        tracked = self.track(actions, readings)
        return self._batch(
            self._lay_out(actions, readings, tracked),
            self._interleaved(tracked.products, states),
            actions=actions,
            products=tracked.products,
            states=states,
            readings=readings,
        )

    def exact(self, inputs: Tensor) -> Tensor:
        self._check_inputs(inputs)
        return self._posterior(self.track(*self.read(inputs)))

    def read(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """[B, T] actions and [B, T] readings."""
        readings = inputs[:, self._reading_at :: self._width] - self._group.order
        return inputs[:, :: self._width], readings

    def track(self, actions: Tensor, readings: Tensor) -> Tracked:
        """Products and beliefs: log-likelihoods of x_0 add up, and g_t moves them to x_t."""
        group = self._group
        products = prefix_products(group, actions)
        back = group.action[group.inverses].to(products.device)[products]  # [B, T, points]
        origins = back.gather(2, readings[..., None])
        right = torch.zeros_like(back, dtype=torch.float64).scatter(2, origins, 1.0).cumsum(1)
        steps = torch.arange(1, back.shape[1] + 1, device=back.device)[:, None]
        miss = torch.tensor((1 - self.reliability) / (group.points - 1), dtype=torch.float64)
        score = right * math.log(self.reliability) + torch.xlogy(steps - right, miss)
        return Tracked(products, score.softmax(-1).gather(2, back))

    def spell(self, outcomes: Tensor) -> Tensor:
        """The tokens that write these outcomes into the scratch."""
        return outcomes + self._first_scratch

    @property
    def _group(self) -> Group:
        return make_group(self.group)

    @property
    def _width(self) -> int:
        """Positions of a step."""
        return 2 if self.scratch == "none" else 3

    @property
    def _reading_at(self) -> int:
        """Where in a step the reading stands."""
        return 2 if self.scratch in ("product", "filler") else 1

    @property
    def _first_scratch(self) -> int:
        return self._group.order + self._group.points

    def _posterior(self, tracked: Tracked) -> Tensor:
        beliefs = pad(tracked.beliefs, (0, self.outcomes - self._group.points))
        if self.scratch != "product":
            return beliefs
        return self._interleaved(one_hot(tracked.products, self.outcomes).double(), beliefs)

    def _interleaved(self, products: Tensor, others: Tensor) -> Tensor:
        """[B, S, …] of products [B, T, …] and of what is predicted at readings, in order."""
        if self.scratch != "product":
            return others
        return torch.stack([products, others], dim=2).flatten(1, 2)

    def _lay_out(self, actions: Tensor, readings: Tensor, tracked: Tracked) -> Tensor:
        shown = readings + self._group.order
        match self.scratch:
            case "none":
                columns = [actions, shown]
            case "product":
                columns = [actions, self.spell(tracked.products), shown]
            case "argmax":
                columns = [actions, shown, self.spell(most_probable(tracked.beliefs))]
            case "filler":
                columns = [actions, torch.full_like(actions, self._first_scratch), shown]
        return torch.stack(columns, dim=2).flatten(1)[:, : self.positions].contiguous()


def prefix_products(group: Group, actions: Tensor) -> Tensor:
    """[B, T] g_t = a_t · g_{t-1}."""
    table = group.table.to(actions.device)
    products = [actions[:, 0]]
    for action in actions.unbind(1)[1:]:
        products.append(table[action, products[-1]])
    return torch.stack(products, dim=1)


def most_probable(beliefs: Tensor) -> Tensor:
    """The first of the outcomes with the largest probability."""
    return (beliefs >= beliefs.amax(-1, keepdim=True) - TIED).long().argmax(-1)


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
