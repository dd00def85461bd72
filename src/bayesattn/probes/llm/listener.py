"""A cache that hears keys and values on their way to attention."""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from transformers import DynamicCache, PreTrainedConfig

Hear = Callable[[int, Tensor, Tensor], None]
"""Is told the layer's number in caches, and its keys and values [B, heads, T, D]."""


class Listener(DynamicCache):
    """Keeps nothing and hands attention the very tensors it was given, as if there were no cache.

    Args:
        config: of the model.
        hear: is called in every layer.
        keep: be a cache of transformers besides, whose memory attention then reads.
    """

    def __init__(self, config: PreTrainedConfig, hear: Hear, *, keep: bool = False) -> None:
        super().__init__(config=config)
        self.hear, self.keep = hear, keep

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Tell, and hand on."""
        self.hear(layer_idx, key_states, value_states)
        if self.keep:
            return super().update(key_states, value_states, layer_idx, *args, **kwargs)
        return key_states, value_states
