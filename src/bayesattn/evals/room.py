"""A cache of keys and values in memory that is taken once.

Transformers' dynamic cache grows by concatenation: for every chunk of a long prompt it would copy
all keys and hold those of a layer twice. Its static cache shows attention the rows that nobody has
written yet. This one does neither, and can be taken back to any earlier length.
"""

# pyright: reportUnknownMemberType=false
# (transformers leaves some members untyped)

from typing import Any

from torch import Tensor
from transformers import Cache
from transformers.cache_utils import DynamicLayer


class RoomLayer(DynamicLayer):
    """Keys and values of one layer, views of the rows written so far.

    Args:
        room: tokens that fit.
    """

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Take the memory when the first keys tell their shape."""
        self.dtype, self.device = key_states.dtype, key_states.device
        self._all_keys, self._all_values = (
            x.new_empty(*x.shape[:2], self.room, x.shape[3]) for x in (key_states, value_states)
        )
        self.keys, self.values = self._all_keys[:, :, :0], self._all_values[:, :, :0]
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write after what is there; all keys and values so far."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start = self.get_seq_length()
        stop = start + key_states.shape[2]
        if stop > self.room:
            raise ValueError(f"the cache has room for {self.room} tokens, not for {stop}")
        self._all_keys[:, :, start:stop] = key_states
        self._all_values[:, :, start:stop] = value_states
        self.keys, self.values = self._all_keys[:, :, :stop], self._all_values[:, :, :stop]
        return self.keys, self.values


def make_room(layers: int, tokens: int) -> Cache:
    """A cache for so many tokens in every layer."""
    return Cache(layers=[RoomLayer(tokens) for _ in range(layers)])
