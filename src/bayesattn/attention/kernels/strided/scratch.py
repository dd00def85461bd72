"""Memory for tiles that is kept from call to call.

A fresh buffer of a few megabytes costs a page fault every four kilobytes, which in short sequences
is more than the attention itself. One buffer per thread and dtype is kept instead; it grows to the
largest tile, some ten megabytes.
"""

import threading

import torch
from torch import Tensor

_kept = threading.local()


def scratch(numel: int, like: Tensor) -> Tensor:
    """`numel` elements of any content, valid until the next call from the same thread."""
    buffers: dict[torch.dtype, Tensor] = _kept.__dict__.setdefault("buffers", {})
    buffer = buffers.get(like.dtype)
    if buffer is None or buffer.numel() < numel:
        buffer = buffers[like.dtype] = torch.empty(numel, dtype=like.dtype)
    return buffer[:numel]
