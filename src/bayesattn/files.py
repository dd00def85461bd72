"""Files that are either all there or not there, even after kill -9 or a power cut."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from bayesattn.errors import WriteError

TEMPORARY = ".tmp-"
"""Start of the name of whatever is not finished yet."""


def write_json(path: Path, data: Any) -> None:
    """Write JSON: to a temporary sibling, to the disk, then under its name."""
    write_text(path, json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Replace a file by `text`, or leave it as it was."""
    temporary = path.with_name(f"{TEMPORARY}{os.getpid()}-{path.name}")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def sync(path: Path) -> None:
    """Have the disk keep what was written to a file."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Have the disk keep the names in a folder; not all systems can."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def remove(folder: Path) -> None:
    """Remove a folder so that no half of it is ever found under its name."""
    trash = folder.with_name(f"{TEMPORARY}old-{folder.name}")
    shutil.rmtree(trash, ignore_errors=True)
    folder.rename(trash)
    shutil.rmtree(trash, ignore_errors=True)


def aside(path: Path) -> Path:
    """Move a damaged file or folder out of the way, under a name of its own; nothing is lost."""
    number = 1
    while (kept := path.with_name(f"{path.stem}.aside-{number}{path.suffix}")).exists():
        number += 1
    return path.rename(kept)


def clean(folder: Path) -> None:
    """Remove what a killed writer left behind. Only for the one who may write here."""
    for path in folder.glob(f"{TEMPORARY}*"):
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()


@contextmanager
def writing(what: str, advice: str) -> Iterator[None]:
    """Turn a full disk and its like into one sentence: what could not be written, what to do."""
    try:
        yield
    except OSError as error:
        raise WriteError(f"Cannot write {what} ({error.strerror or error}): {advice}.") from error
    except SafetensorError as error:  # how safetensors reports a full disk
        raise WriteError(f"Cannot write {what} ({error}): {advice}.") from error
