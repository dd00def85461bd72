"""Which keys a query sees: causality, cache offset, padding, documents and window in one place.

Query row i sits at physical index `offset + i`. It sees key j iff

    first[b, i] <= j <= offset + i   and   j > offset + i - window

`first` covers left padding and packed documents: both set the first key of a query.
Distances are differences of physical indices, so padding and caches never shift them.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# (torch leaves some members untyped)

from dataclasses import dataclass
from typing import NamedTuple, TypeGuard

import torch
from torch import Tensor


class Run(NamedTuple):
    """Query rows [start, stop) that share their first visible key."""

    start: int
    stop: int
    first: int


class Group(NamedTuple):
    """Sequences with the same cuts."""

    rows: slice | Tensor
    """Places of the sequences in the batch; a slice if they are next to each other."""
    one: int
    """The place of one of the sequences."""
    runs: list[Run]


@dataclass(frozen=True)
class Visibility:
    """Keys seen by T queries at physical indices offset .. offset+T-1 (see the module)."""

    num_queries: int
    offset: int = 0
    first: Tensor | None = None
    """[B, T] index of the first visible key of each query; None means 0 everywhere."""
    window: int | None = None
    """Number of most recent keys seen, own token included; None means all."""
    exempt: int = 0
    """Keys first .. first+exempt-1 have log-prior 0 whatever their distance."""

    @property
    def end(self) -> int:
        """One past the last key any query sees: cache rows from here on are unwritten."""
        return self.offset + self.num_queries

    @property
    def span(self) -> int:
        """Length of a distance table that covers every visible pair."""
        return self.end if self.window is None else min(self.end, self.window)

    def positions(self, device: torch.device) -> Tensor:
        """[T] physical index of each query."""
        return torch.arange(self.offset, self.end, device=device)

    def mask(
        self, device: torch.device, rows: slice = slice(None), keys: slice = slice(None)
    ) -> Tensor:
        """[B or 1, 1, T, end] True where the key is visible; all or some queries and keys."""
        query = self.positions(device)[rows, None]
        key = torch.arange(self.end, device=device)[None, keys]
        seen = key <= query
        if self.window is not None:
            seen = seen & (key > query - self.window)
        if self.first is None:
            return seen[None, None]
        return (seen[None] & (key[None] >= self.first[:, rows, None]))[:, None]

    def exempted(self, device: torch.device) -> Tensor:
        """[B or 1, 1, T, end] True where the key is exempt from the prior."""
        key = torch.arange(self.end, device=device)
        if self.first is None:
            return (key < self.exempt)[None, None, None, :].expand(1, 1, self.num_queries, -1)
        return (key[None, None, :] < self.first[:, :, None] + self.exempt)[:, None]

    def count(self, device: torch.device) -> Tensor:
        """[B or 1, T] number of visible keys, n of SSMax; 0 for rows of padding."""
        seen = self._history(device)
        return seen if self.window is None else seen.clamp(max=self.window)

    def near_and_exempt(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """[B or 1, T] numbers of visible keys under the prior, and of visible exempt keys.

        Keys under the prior are the nearest ones. The sum of both numbers is `count`.
        """
        count = self.count(device)
        near = torch.minimum(count, (self._history(device) - self.exempt).clamp(min=0))
        return near, count - near

    def _history(self, device: torch.device) -> Tensor:
        """[B or 1, T] number of keys since the first one, own token included, before windowing."""
        history = self.positions(device)[None] + 1
        return history if self.first is None else (history - self.first).clamp(min=0)

    def groups(self, *factors: Tensor | None) -> list[Group]:
        """Cut the queries where `first` changes: inside a run visibility is a plain causal band.

        Rows of padding, which see nothing, belong to no run. Sequences with the same cuts and the
        same `factors` [B or 1, ...] share a group.
        """
        if self.first is None and all(x is None or x.shape[0] == 1 for x in factors):
            group, _ = self.only()
            return [group]
        telling = [x.detach().cpu() for x in (self.first, *factors) if _varies(x)]
        members: dict[bytes, list[int]] = {}
        for row in range(max([len(x) for x in telling], default=1)):
            key = b"".join(x[row].contiguous().view(torch.uint8).numpy().tobytes() for x in telling)
            members.setdefault(key, []).append(row)
        first = None if self.first is None else self.first.cpu()
        groups: list[Group] = []
        for rows in members.values():
            runs = [Run(0, self.num_queries, 0)] if first is None else self._cut(first[rows[0]])
            groups.append(Group(_places(rows, len(members) == 1), rows[0], runs))
        return groups

    def only(self) -> tuple[Group, Run]:
        """The one group and run of queries that all see from key 0 on."""
        run = Run(0, self.num_queries, 0)
        return Group(slice(None), 0, [run]), run

    def _cut(self, first: Tensor) -> list[Run]:
        values, lengths = torch.unique_consecutive(first, return_counts=True)
        runs: list[Run] = []
        stop = 0
        for value, length in zip(values.tolist(), lengths.tolist(), strict=True):
            start, stop = stop, stop + length
            alive = max(start, value - self.offset)  # rows before it are padding
            if alive < stop:
                runs.append(Run(alive, stop, value))
        return runs


def _varies(factor: Tensor | None) -> TypeGuard[Tensor]:
    return factor is not None and factor.shape[0] > 1


def _places(rows: list[int], everyone: bool) -> slice | Tensor:
    if everyone:
        return slice(None)
    adjacent = rows[-1] - rows[0] == len(rows) - 1
    return slice(rows[0], rows[-1] + 1) if adjacent else torch.tensor(rows)


def first_visible(
    num_queries: int, offset: int, documents: Tensor | None, padding: Tensor | None
) -> Tensor | None:
    """[B, T] first key each query may see, from document ids [B, S] and padding counts [B]."""
    first = None
    if documents is not None:
        end = offset + num_queries
        key = torch.arange(end, device=documents.device)
        documents = documents[:, :end]
        fresh = torch.ones_like(documents, dtype=torch.bool)
        fresh[:, 1:] = documents[:, 1:] != documents[:, :-1]
        first = torch.where(fresh, key, 0).cummax(dim=1).values[:, offset:]
    if padding is not None:
        start = padding[:, None].expand(-1, num_queries)
        first = start if first is None else torch.maximum(first, start)
    return first
