"""What commands print: tables for people, JSON for programs."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from bayesattn.errors import UserError


def show_rows(rows: Sequence[Mapping[str, str]]) -> None:
    """Print rows that share their keys as a table."""
    table = Table(*(rows[0] if rows else ()), box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*row.values())
    # a pipe has no width to keep to, and cut cells cannot be searched
    width = None if sys.stdout.isatty() else 200
    Console(markup=False, highlight=False, width=width).print(table)


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
