"""What commands print: tables for people, JSON for programs."""

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
"""Columns that no table fills."""


def show_rows(rows: Sequence[Mapping[str, str]], file: TextIO | None = None) -> None:
    """Print rows that share their keys as a table, to standard output if no file is given."""
    target = file or sys.stdout
    table = Table(*(rows[0] if rows else ()), box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*row.values())
    if target.isatty():
        Console(file=target, markup=False, highlight=False).print(table)
        return
    # a pipe has no width to keep to, and cells that are cut or folded cannot be searched
    shown = StringIO()
    Console(markup=False, highlight=False, width=UNFOLDED, file=shown).print(table)
    print("\n".join(line.rstrip() for line in shown.getvalue().splitlines()), file=target)


def make_bar(shown: bool = True) -> Progress:
    """A bar on standard error, for people; in pipes and files nothing is shown."""
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
    """A function that says on standard error what is being done, and for how long.

    In a terminal that is one line that changes. In pipes and files it is a line whenever something
    else is being done, and for work that goes on: one `every` so many seconds at most.
    """
    console = Console(stderr=True, markup=False, highlight=False)
    if console.is_terminal:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        # what is printed meanwhile shall stay in the pipe that it is printed to
        aside = sys.stdout.isatty()
        with Progress(*columns, console=console, transient=True, redirect_stdout=aside) as bar:
            task = bar.add_task("")
            yield lambda what: bar.update(task, description=what)
        return
    begin, doing, done = time.monotonic(), [""], Event()
    stream = sys.stderr  # which is silenced while others load models

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
    """Errors in here come from what the user typed: one sentence is enough for them."""
    try:
        yield
    except UserError:
        raise
    except OSError as error:
        raise UserError(f"Cannot use {error.filename} ({error.strerror}).") from error
    except (TypeError, ValueError) as error:
        raise UserError(str(error)) from error
