"""What the training runs on: threads, devices, processes, signals."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Literal, Self

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list

from bayesattn.errors import UserError

Precision = Literal["fp32", "bf16"]
SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


DEVICES = ("cpu", "cuda")
_chosen: list[str] = []


def use_device(name: str) -> None:
    """Have everything that trains in this process use this kind of device."""
    if name not in DEVICES:
        raise UserError(
            f"There is no device {name!r} to train on: choose {' or '.join(DEVICES)}; which GPU it "
            "is, CUDA_VISIBLE_DEVICES says."
        )
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("There is no GPU with CUDA here: train with --device cpu.")
    _chosen[:] = [name]


def on_gpu() -> bool:
    return _chosen != ["cpu"] and torch.cuda.is_available()


def make_accelerator() -> Accelerator:
    """A GPU if there is CUDA, else the CPU; all processes of a torchrun together.

    Accelerate trains with several processes on CPUs only if told so, and Apple's GPUs lack the
    float64 of exact posteriors.
    """
    return Accelerator(cpu=not on_gpu())


def quickest() -> Precision:
    """bf16 where products in it are quick, else fp32: without such units it is emulated."""
    return "bf16" if has_bf16() else "fp32"


def has_bf16() -> bool:
    """Whether this machine multiplies in bfloat16."""
    if on_gpu():
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return bool(torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported())


def agreed(accelerator: Accelerator, value: Any) -> Any:
    """What the main process says."""
    return broadcast_object_list([value])[0] if accelerator.num_processes > 1 else value


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


class Interrupt:
    """`with Interrupt() as interrupt:` notes the first Ctrl-C in `asked`; the second one stops.

    So do SIGTERM, which clusters send before they take a machine away, and SIGHUP, which a terminal
    sends when it closes; `nohup` has the latter ignored. Only a main thread can listen to signals;
    elsewhere nothing is ever asked.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for name in SIGNALS:
                number = getattr(signal, name, None)  # Windows lacks one
                if number and (name != "SIGHUP" or signal.getsignal(number) != signal.SIG_IGN):
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # pyright: ignore[reportArgumentType]

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
