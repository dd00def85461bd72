"""The number of CPU threads: sums are split by thread, so the same result needs the same number."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def using_threads(count: int | None) -> Iterator[None]:
    """Torch has `count` threads in here, or as many as before if None."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
