"""Files with checksums that are written atomically, even if the writer is killed or power fails.

JSON files that are read back have a checksum of the text before it as their last field:

    {"step": 3, "loss": 0.5, "checksum": "0c4e3a9b1f7d"}

Older files without a checksum are read unchecked.
"""

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from bayesattn.errors import UserError, WriteError

TEMPORARY = ".tmp-"
"""Beginning of the names of unfinished files and folders."""
CHECKSUM = "checksum"
DIGITS = 12


def write_json(path: Path, data: Any, *, checked: bool = False) -> None:
    """Write JSON atomically: to a temporary file, synced, then renamed.

    Files for `read_json` are `checked`: they get a checksum.
    """
    text = escaped(json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False))
    write_text(path, (with_checksum(text) if checked else text) + "\n")


def escaped(text: str) -> str:
    r"""JSON with escapes for bytes of paths that are not text; the content is the same.

    >>> escaped('"pr\udcc3fung"')
    '"pr\\udcc3fung"'
    """
    return text.encode(errors="backslashreplace").decode()


def read_json(path: Path) -> Any:
    """JSON of a file; ValueError if it is damaged or not JSON."""
    return parse(path.read_text(encoding="utf-8"))


def inside(folder: Path, name: str) -> Path | None:
    """The file `name` of a folder; None if it, or the target of its link, is elsewhere."""
    path = folder / name
    return path if folder.resolve() in path.resolve().parents else None


def with_checksum(text: str) -> str:
    """An object as JSON, with a checksum as its last field."""
    body = text.removesuffix("}").rstrip()
    line = "\n " if "\n" in text else " "
    comma = "" if body == "{" else ","
    return f'{body}{comma}{line}"{CHECKSUM}": "{_digest(body)}"{line.removesuffix(" ")}}}'


def parse(text: str) -> Any:
    """JSON without its checksum; ValueError if the checksum is wrong, or for NaN."""
    try:
        data = _DECODER.decode(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if isinstance(data, dict) and data:
        name, last = next(reversed(data.items()))
        body = text[: text.rindex(f'"{name}"')].rstrip().removesuffix(",") if _short(last) else ""
        if CHECKSUM in data and last != _digest(body):
            raise ValueError("it was changed after it was written: its checksum does not match")
        if name != CHECKSUM and _short(last) and last == _digest(body):
            raise ValueError(f"its checksum is called {name!r}")
        data.pop(CHECKSUM, None)
    return data


def _short(value: Any) -> bool:
    return isinstance(value, str) and len(value) == DIGITS


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not a number that was written")


_DECODER = json.JSONDecoder(parse_constant=_refuse)


def write_text(path: Path, text: str) -> None:
    """Replace the content of a file by `text`, atomically; links and devices are kept."""
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    path = path.resolve() if path.is_symlink() else path
    temporary = path.with_name(f"{TEMPORARY}{os.getpid()}-{path.name}")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        error.filename = str(path)
        raise
    sync_folder(path.parent)


def sync(path: Path) -> None:
    """Sync a file to the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Sync the names in a folder to the disk; not all systems can."""
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


def is_taken(folder: Path) -> bool:
    """Whether a new folder cannot be made there: an empty one may be, but for the present one."""
    there = folder.exists()
    return there and (not folder.is_dir() or folder.samefile(".") or any(folder.iterdir()))


def remove(folder: Path) -> None:
    """Remove a folder atomically: no part of it stays under its name."""
    trash = folder.with_name(f"{TEMPORARY}old-{folder.name}")
    shutil.rmtree(trash, ignore_errors=True)
    folder.rename(trash)
    shutil.rmtree(trash, ignore_errors=True)


def aside(path: Path) -> Path:
    """Rename a damaged file or folder to an unused name; nothing is lost."""
    number = 1
    while (kept := path.with_name(f"{path.stem}.aside-{number}{path.suffix}")).exists():
        number += 1
    return path.rename(kept)


def clean(folder: Path) -> None:
    """Remove unfinished files of a killed writer. Only the present writer may call this."""
    for path in folder.glob(f"{TEMPORARY}*"):
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()


@contextmanager
def only_one(folder: Path, busy: str, error: type[UserError] = UserError) -> Iterator[None]:
    """Lock a folder; another process gets an error that names the owner and what it is `busy` with.

    The system releases the lock when the process ends in any way, so no lock is ever stale.
    """
    from filelock import FileLock, Timeout

    holder = folder / ".lock-by"
    with writing(str(holder), "choose another folder"):
        try:
            lock = FileLock(folder / ".lock").acquire(timeout=0)
        except Timeout:
            raise error(
                f"Another process{_owner(holder)} is {busy} in {folder}: "
                "wait for it, or choose another folder."
            ) from None
    with lock:
        with writing(str(holder), "make room, or choose another folder"):
            write_text(holder, f"{os.getpid()} {time.strftime('%Y-%m-%d %H:%M:%S')}\n")
        try:
            yield
        finally:
            holder.unlink(missing_ok=True)


def _owner(holder: Path) -> str:
    try:
        match = re.fullmatch(r"(\d+) ([\d :-]+)\n", holder.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    return f" ({match[1]}, since {match[2]})" if match else ""


@contextmanager
def writing(what: str, advice: str) -> Iterator[None]:
    """Context that turns errors such as a full disk into one sentence with the fix."""
    try:
        yield
    except OSError as error:
        raise WriteError(f"Cannot write {what} ({error.strerror or error}): {advice}.") from error
    except SafetensorError as error:  # how safetensors reports a full disk
        raise WriteError(f"Cannot write {what} ({error}): {advice}.") from error
