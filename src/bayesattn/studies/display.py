"""What is going on, for whoever is waiting: what is left, for how long, and each verdict."""

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from bayesattn.studies import words
from bayesattn.studies.costs import Costs
from bayesattn.studies.engines import Ended
from bayesattn.studies.jobs import Job, MeasurementJob, TrainingJob
from bayesattn.studies.ledger import Record
from bayesattn.studies.scheduling import remaining

QUIET = 30.0
"""Seconds between two lines where lines cannot be overwritten."""


class Display:
    """A bar for the whole and one for each study; in a log, a line now and then."""

    def __init__(self, jobs: Mapping[str, list[Job]], slots: int, costs: Costs) -> None:
        self.console = Console(stderr=True, markup=False, highlight=False)
        self._jobs, self._slots, self._costs = jobs, slots, costs
        self._progress = Progress(
            TextColumn("{task.description:<28}"),
            BarColumn(),
            TextColumn("{task.fields[left]}"),
            console=self.console,
            transient=True,
        )
        self._whole: TaskID | None = None
        self._bars: dict[str, TaskID] = {}
        self._most: dict[str, int] = {}
        self._total = 0
        self._spoken = time.monotonic()

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
        self._progress.stop()

    def tell(self, left: Mapping[str, Job], ended: Ended | None) -> None:
        """Show what is left."""
        self._total = max(self._total, len(left))
        if not self._total:
            return
        if self.console.is_terminal:
            self._move_bars(left)
        elif time.monotonic() - self._spoken > QUIET:
            self._spoken = time.monotonic()
            self.console.print(self._line(left), soft_wrap=True)

    def verdict(self, record: Record) -> None:
        """Say what a study found."""
        said = f"{words.verdict(record):15}{record.claim.id} ({record.seconds:.1f} s)"
        self.console.print(said, soft_wrap=True)
        if record.failure:
            self.console.print(record.failure.sentence, soft_wrap=True)

    def _line(self, left: Mapping[str, Job]) -> str:
        models = sum(isinstance(job, TrainingJob) for job in left.values())
        measurements = sum(isinstance(job, MeasurementJob) for job in left.values())
        return (
            f"{models} models to train and {measurements} measurements to make, "
            f"{duration(remaining(left, self._slots, self._costs))} left"
        )

    def _move_bars(self, left: Mapping[str, Job]) -> None:
        if self._whole is None:
            self._whole = self._progress.add_task("all", total=self._total, left="")
        done = self._total - len(left)
        eta = duration(remaining(left, self._slots, self._costs))
        self._progress.update(self._whole, completed=done, left=f"{eta} left")
        for name, jobs in self._jobs.items():
            own = sum(job.name in left for job in jobs)
            if name not in self._bars and own:
                self._bars[name] = self._progress.add_task(name, total=own, left="")
                self._most[name] = own
            if name in self._bars:
                done, left_of = self._most[name] - own, f"{own} to do"
                bar = self._bars[name]
                self._progress.update(bar, completed=done, left=left_of, visible=own > 0)


def duration(seconds: float) -> str:
    """About how long.

    >>> [duration(s) for s in (4, 70, 4000, 200000)]
    ['a few seconds', 'about 2 min', 'about 1.1 h', 'about 2.3 days']
    """
    if seconds < 20:
        return "a few seconds"
    if seconds < 3600:
        return f"about {-(-seconds // 60):.0f} min"
    if seconds < 48 * 3600:
        return f"about {seconds / 3600:.1f} h"
    return f"about {seconds / 86400:.1f} days"
