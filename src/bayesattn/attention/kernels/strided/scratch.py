"""Memory for blocks and tiles that is kept from call to call.

A fresh buffer of a few megabytes costs a page fault every four kilobytes, which in short sequences
is a good part of the attention itself. One buffer per purpose, thread and dtype is kept instead; it
grows to the largest block or tile, some ten megabytes.
"""

import threading
from math import prod

import torch
from torch import Tensor

_kept = threading.local()


def scratch(purpose: str, shape: tuple[int, ...], like: Tensor) -> Tensor:
    """A tensor of any content, valid until the same thread asks again for the same purpose."""
    buffers: dict[tuple[str, torch.dtype], Tensor] = _kept.__dict__.setdefault("buffers", {})
    key, numel = (purpose, like.dtype), prod(shape)
    buffer = buffers.get(key)
    if buffer is None or buffer.numel() < numel:
        buffer = buffers[key] = torch.empty(numel, dtype=like.dtype)
    return buffer[:numel].view(shape)
