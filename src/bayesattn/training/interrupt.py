"""Ctrl-C that lets a step finish."""

import signal
import threading
from types import FrameType
from typing import Self

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupt:
    """`with Interrupt() as interrupt:` notes the first Ctrl-C in `asked`; the second one stops.

    So does SIGTERM, which clusters send before they take a machine away. Only a main thread can
    listen to signals; elsewhere nothing is ever asked.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # pyright: ignore[reportArgumentType]

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
