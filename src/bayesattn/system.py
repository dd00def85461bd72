"""The machine: versions and commit for the record, and memory; no personal data."""

import ctypes
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import bayesattn

GIBIBYTE = 1 << 30
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
_LARGEST = 32 << 20  # bytes; glibc refuses a higher threshold
_FREE = (1 << 31) - 1


def environment() -> dict[str, Any]:
    """Versions, platform and number of CPUs; no host name and no paths."""
    return {
        "bayesattn": bayesattn.__version__,
        "python": platform.python_version(),
        "torch": version("torch"),
        "platform": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
    }


def commit() -> str | None:
    """Commit of this source tree, with `-dirty` if files were changed since; None if installed."""
    folder = Path(bayesattn.__file__).parent
    # A virtual environment may be inside another repository, whose commit would be wrong.
    if _git(folder, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    return _git(folder, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")


def free_memory(device: str = "cpu") -> int:
    """Free bytes of a GPU, or of main memory within the limit of a container."""
    import psutil
    import torch

    if device.startswith("cuda"):
        return torch.cuda.mem_get_info(torch.device(device))[0]
    free: int = psutil.virtual_memory().available
    limit, used = (Path("/sys/fs/cgroup") / name for name in ("memory.max", "memory.current"))
    try:
        return min(free, int(limit.read_text()) - int(used.read_text()))
    except (OSError, ValueError):  # another system, or "max": no limit
        return free


def keep_memory() -> bool:
    """Let this process reuse the memory of freed tensors; returns whether that is possible.

    By default glibc requests memory for every large tensor and returns it afterwards, and the
    system clears each page. This takes a tenth of the step of a small language model, and more of a
    sampler. With other C libraries the function does nothing.
    """
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    kept = set_option(_M_MMAP_THRESHOLD, _LARGEST) and set_option(_M_TRIM_THRESHOLD, _FREE)
    return bool(kept)


def release_memory() -> None:
    """Give freed memory back to the system; with C libraries other than glibc nothing happens."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError, TypeError):
        return


def peak_bytes(call: Callable[[], Any]) -> int:
    """Peak of torch's CPU memory during `call`, in bytes beyond the memory before.

    The number comes from the allocator's events, because resident memory includes freed memory.
    """
    from torch.profiler import ProfilerActivity, profile

    with _quiet(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        result = call()
    recorded: Any = profiled.profiler
    events = [e for e in recorded.kineto_results.events() if e.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    del result
    return peak


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            # without locks: a lock left by a full disk or a kill would stop every commit
            ["git", "--no-optional-locks", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the profiler, which writes to file descriptor 2 directly."""
    sys.stderr.flush()
    kept = os.dup(2)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
