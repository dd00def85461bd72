"""One writer per run, and one reader of a corpus at a time."""

import hashlib
import tempfile
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


@contextmanager
def taking_turns(name: str) -> Iterator[None]:
    """Wait until no other process of this machine is in here with the same name."""
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    with (Path(tempfile.gettempdir()) / f"bayesattn-{digest}.lock").open("w") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
