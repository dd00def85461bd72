"""One writer per run."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bayesattn.training.errors import RunError

try:
    import fcntl
except ImportError:  # Windows: nobody watches there
    fcntl = None


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of `folder`, which the system releases however the process ends."""
    with (folder / ".lock").open("w") as file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunError(
                    f"Another process is training in {folder}: "
                    "wait for it, or choose another folder."
                ) from None
        yield
