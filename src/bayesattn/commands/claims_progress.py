"""What is going on, for whoever is waiting: how much is done, since when, and each verdict."""

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bayesattn.ledger import words
from bayesattn.ledger.jobs import Job, TrainingJob
from bayesattn.ledger.ledger import Record

QUIET = 30.0
"""Seconds between two lines where lines cannot be overwritten."""


class Display:
    """One bar over all jobs; in a log, a line now and then."""

    def __init__(self) -> None:
        self.console = Console(stderr=True, markup=False, highlight=False)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self.console,
            transient=True,
        )
        self._bar = self._progress.add_task("", total=None)
        self._total = 0
        self._began = self._spoken = time.monotonic()

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self.console.is_terminal:
            self._progress.stop()

    def tell(self, left: Mapping[str, Job]) -> None:
        """Show what is left."""
        self._total = max(self._total, len(left))
        models = sum(isinstance(job, TrainingJob) for job in left.values())
        said = f"{models} models to train, {len(left) - models} measurements to make"
        done, now = self._total - len(left), time.monotonic()
        self._progress.update(self._bar, description=said, completed=done, total=self._total)
        if not self.console.is_terminal and self._total and now - self._spoken > QUIET:
            self._spoken = now
            minutes = (now - self._began) / 60
            line = f"{done}/{self._total} done after {minutes:.0f} min: {said}"
            self.console.print(line, soft_wrap=True)

    def verdict(self, record: Record) -> None:
        """Say what was found."""
        said = f"{words.verdict(record):15}{record.claim.id} ({record.seconds:.1f} s)"
        self.console.print(said, soft_wrap=True)
        if record.failure:
            self.console.print(record.failure.sentence, soft_wrap=True)
