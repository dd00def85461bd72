"""A cache for long prompts: allocated once, grown without copies, rewound to earlier lengths.

Transformers' dynamic cache grows by concatenation: for every chunk of a long prompt it copies all
keys, and holds the keys of a layer twice. Its static cache passes empty rows to attention. `Room`
does neither. For a layer with a window it keeps this window, and copies of the window at some
earlier lengths.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# (caches of transformers have no types)

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from transformers import Cache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

MARKS = 32
"""Largest number of earlier lengths to which layers with a window can be rewound."""


class RoomLayer(DynamicLayer):
    """Keys and values of one layer with `room` tokens, views of the rows written so far."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.dtype, self.device = key_states.dtype, key_states.device
        self._move(key_states[:, :, :0], value_states[:, :, :0])
        self.is_initialized = True

    def _move(self, keys: Tensor, values: Tensor) -> None:
        """Allocate new memory that holds these keys and values."""
        length = keys.shape[2]
        self._all_keys, self._all_values = (
            x.new_empty(*x.shape[:2], self.room, x.shape[3]) for x in (keys, values)
        )
        self.keys, self.values = self._all_keys[:, :, :length], self._all_values[:, :, :length]
        self.keys.copy_(keys)
        self.values.copy_(values)

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start = self.get_seq_length()
        stop = start + key_states.shape[2]
        if stop > self.room:
            raise ValueError(f"the cache has room for {self.room} tokens, not for {stop}")
        assert self.keys is not None and self.values is not None
        if start and self.keys.data_ptr() != self._all_keys.data_ptr():  # beams were reordered
            self._move(self.keys, self.values)
        self._all_keys[:, :, start:stop] = key_states
        self._all_values[:, :, start:stop] = value_states
        self.keys, self.values = self._all_keys[:, :, :stop], self._all_values[:, :, :stop]
        return self.keys, self.values


class WindowLayer(DynamicSlidingWindowLayer):
    """The last keys and values of one layer, and copies of them at the lengths that were marked."""

    def __init__(self, sliding_window: int) -> None:
        super().__init__(sliding_window)
        self.marked: dict[int, tuple[Tensor, Tensor]] = {}

    def mark(self) -> None:
        """Keep a copy of the present window."""
        assert self.keys is not None and self.values is not None, "nothing was read"
        last = -self.sliding_window + 1 or self.cumulative_length  # one key needs no copy
        self.marked[self.cumulative_length] = (
            self.keys[:, :, last:].clone(),
            self.values[:, :, last:].clone(),
        )

    def rewind(self, length: int) -> None:
        """Rewind to a marked length, or to 0."""
        self.marked = {mark: kept for mark, kept in self.marked.items() if mark <= length}
        if length == 0:
            self.reset()
        else:
            self.keys, self.values = self.marked[length]
            self.cumulative_length = length


class Room(Cache):
    """Room for `tokens` in every layer, or for its window."""

    def __init__(self, layers: Sequence[int | None], tokens: int) -> None:
        """`layers` are the windows of the layers; None for layers that see all keys."""
        kept: list[Any] = [
            RoomLayer(tokens) if size is None else WindowLayer(size) for size in layers
        ]
        super().__init__(layers=kept)
        self._windows = [layer for layer in kept if isinstance(layer, WindowLayer)]
        self._rooms = [layer for layer in kept if isinstance(layer, RoomLayer)]
        self._marks: list[int] = []
        self._apart = 0

    def mark(self) -> None:
        """Mark this length, if it is not too near to the last marked one.

        If there are too many marks, every second one is dropped and the distance doubled.
        """
        last, now = self._marks[-1] if self._marks else 0, self.get_seq_length()
        if not self._windows or now - last < self._apart:
            return
        self._marks.append(now)
        for layer in self._windows:
            layer.mark()
        if len(self._marks) == MARKS:
            for mark in self._marks[::2]:
                for layer in self._windows:
                    del layer.marked[mark]
            del self._marks[::2]
            self._apart = self._marks[1] - self._marks[0]

    def rewind(self, length: int) -> int:
        """Rewind to `length`, or with windows to the last marked length before it; returns it."""
        if self._windows:
            self._marks = [mark for mark in self._marks if mark <= length]
            length = self._marks[-1] if self._marks else 0
        surplus = self.get_seq_length() - length
        for layer in self._windows:
            layer.rewind(length)
        for layer in self._rooms:
            layer.crop(-surplus)
        return length
