"""What the training runs on: threads, devices, processes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from transformers.utils import logging


def make_accelerator() -> Accelerator:
    """A GPU if there is CUDA, else the CPU; all processes of a torchrun together.

    Accelerate trains with several processes on CPUs only if told so, and Apple's GPUs lack the
    float64 of exact posteriors.
    """
    return Accelerator(cpu=not torch.cuda.is_available())


def agreed(accelerator: Accelerator, value: Any) -> Any:
    """What the main process says."""
    return broadcast_object_list([value])[0] if accelerator.num_processes > 1 else value


def device() -> torch.device:
    """Where models are evaluated."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@contextmanager
def without_bars() -> Iterator[None]:
    """Hugging Face shows no progress bars in here: reading and writing small models is instant."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


@contextmanager
def using_threads(count: int | None) -> Iterator[None]:
    """Torch has `count` threads in here, or as many as before if None.

    Sums are split by thread, so the same result needs the same number.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
