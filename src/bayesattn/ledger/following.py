"""Processes that end with the process that started them, even if it was killed."""

import ctypes
import multiprocessing
import os
import signal
import threading
from multiprocessing.process import BaseProcess
from typing import Any

_PDEATHSIG = 1  # of Linux's prctl.h


def follow() -> None:
    """Let the system kill this process when its parent ends, if the system can."""
    try:
        ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)
    except (AttributeError, OSError, TypeError):
        return


def follow_starter() -> None:
    """End with the process that requested this one, which need not be its parent.

    The pipe between them closes when that process ends in any way.
    """
    follow()
    starter: Any = multiprocessing.parent_process()
    if starter is not None:
        threading.Thread(target=_wait_for, args=(starter,), daemon=True).start()


def _wait_for(starter: BaseProcess) -> None:
    starter.join()
    os._exit(1)
