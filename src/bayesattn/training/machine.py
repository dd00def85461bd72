"""The machine of a training: threads, devices, processes, signals."""

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
    """Set the kind of device for all trainings of this process."""
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

    Accelerate needs to be told to train with several processes on CPUs. Apple's GPUs are not used,
    because they lack float64, which exact posteriors need.
    """
    return Accelerator(cpu=not on_gpu())


def quickest() -> Precision:
    """bf16 if the machine has units for it, else fp32, because emulated bf16 is slow."""
    return "bf16" if has_bf16() else "fp32"


def has_bf16() -> bool:
    """Whether this machine multiplies in bfloat16."""
    if on_gpu():
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return bool(torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported())


def agreed(accelerator: Accelerator, value: Any) -> Any:
    """The value of the main process."""
    return broadcast_object_list([value])[0] if accelerator.num_processes > 1 else value


@contextmanager
def using_threads(count: int | None) -> Iterator[None]:
    """Context in which torch has `count` threads; None changes nothing.

    Sums are split by thread, so equal results need equal numbers of threads.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Interrupt:
    """`with Interrupt() as interrupt:` notes the first Ctrl-C in `asked`; the second one stops.

    SIGTERM (from clusters that take a machine away) and SIGHUP (from a terminal that closes; not
    under `nohup`) count like Ctrl-C. Only the main thread receives signals; in other threads
    `asked` stays False.
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
