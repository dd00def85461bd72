"""Output of commands: tables for people, JSON for programs."""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from threading import Event, Thread
from typing import Any, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from bayesattn.errors import UserError

UNFOLDED = 10_000
"""Width in columns that is larger than any table."""


def show_rows(rows: Sequence[Mapping[str, str]], file: TextIO | None = None) -> None:
    """Print rows with equal keys as a table, to standard output if no file is given."""
    target = file or sys.stdout
    table = Table(*(rows[0] if rows else ()), box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*row.values())
    if target.isatty():
        Console(file=target, markup=False, highlight=False).print(table)
        return
    # a pipe has no width, and programs cannot search cells that are cut or folded
    shown = StringIO()
    Console(markup=False, highlight=False, width=UNFOLDED, file=shown).print(table)
    print("\n".join(line.rstrip() for line in shown.getvalue().splitlines()), file=target)


def make_bar(shown: bool = True) -> Progress:
    """A bar on standard error for terminals; pipes and files get nothing."""
    console = Console(stderr=True, markup=False, highlight=False)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        refresh_per_second=2,
        disable=not (shown and console.is_terminal),
    )


@contextmanager
def telling(every: float = 5.0) -> Iterator[Callable[[str], None]]:
    """A function that shows the present work and its time on standard error.

    In a terminal this is one line that changes. In pipes and files it is a line for each new piece
    of work, and for long work at most one line `every` so many seconds.
    """
    console = Console(stderr=True, markup=False, highlight=False)
    if console.is_terminal:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        # other output meanwhile must stay in its pipe
        aside = sys.stdout.isatty()
        with Progress(*columns, console=console, transient=True, redirect_stdout=aside) as bar:
            task = bar.add_task("")
            yield lambda what: bar.update(task, description=what)
        return
    begin, doing, done = time.monotonic(), [""], Event()
    stream = sys.stderr  # standard error is silenced while models load

    def watch() -> None:
        said = ""
        while not done.wait(every):
            if doing[0] != said:
                said = doing[0]
                print(f"{time.monotonic() - begin:6.0f} s  {said}", file=stream, flush=True)

    watcher = Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield lambda what: doing.__setitem__(0, what)
    finally:
        done.set()
        watcher.join()


def write_json(data: Any, target: str) -> None:
    """Write `data` to the file `target`, or to standard output if it is `-`."""
    text = json.dumps(data, indent=1, ensure_ascii=False) + "\n"
    if target == "-":
        sys.stdout.write(text)
        return
    with mistakes():
        Path(target).write_text(text, encoding="utf-8")


@contextmanager
def mistakes() -> Iterator[None]:
    """Context in which errors come from the user's input, and are printed as one sentence."""
    try:
        yield
    except UserError:
        raise
    except OSError as error:
        raise UserError(f"Cannot use {error.filename} ({error.strerror}).") from error
    except (TypeError, ValueError) as error:
        raise UserError(str(error)) from error
