"""What the training runs on: threads, devices, processes."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from transformers.utils import logging

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
_LARGEST = 32 << 20  # bytes; glibc refuses a higher threshold
_FREE = (1 << 31) - 1


def keep_memory() -> bool:
    """Let this process keep what its tensors free for the next ones; whether it can.

    By default glibc asks the system for every large tensor and gives it back afterwards, and the
    system clears each page anew: a tenth of the time of a small language model's step, and more of
    that of a sampler. Nothing is known of other C libraries, so nothing is done there.
    """
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    kept = set_option(_M_MMAP_THRESHOLD, _LARGEST) and set_option(_M_TRIM_THRESHOLD, _FREE)
    return bool(kept)


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
