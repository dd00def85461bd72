"""How long jobs take, by experience: what they took here before, else where this was recorded.

Machines differ, so what was recorded elsewhere is scaled by how the jobs of this run compare with
it. A job that nobody has seen is taken to be like the middle one of its sort (the first word of its
kind, such as language) among those that were as new in this run, else among all that were recorded,
and if there is none, like the middle one of any sort.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from statistics import median

from bayesattn.studies.jobs import Job
from bayesattn.training.files import write_json

NAME = "seconds.json"
RECORDED = Path(__file__).with_name(NAME)
GUESS = 60.0


class Costs:
    """Seconds by kind of job."""

    def __init__(self, folder: Path | None = None) -> None:
        """Args: folder: where this machine's experience is kept; None for none."""
        self.file = None if folder is None else folder / NAME
        self.recorded = _read(RECORDED)
        self.here = {} if self.file is None else _read(self.file)
        self._seen: list[tuple[float, float]] = []
        self._new: dict[str, float] = {}
        self._kinds: dict[str, str] = {}

    def expected(self, job: Job) -> float:
        """Seconds on one core of this machine."""
        if job.name not in self._kinds:
            self._kinds[job.name] = job.kind  # finding out takes a while
        kind = self._kinds[job.name]
        if kind in self.here:
            return self.here[kind]
        if kind in self.recorded:
            return self.recorded[kind] * self.pace
        recorded = {other: seconds * self.pace for other, seconds in self.recorded.items()}
        for known in (self._new, recorded):
            alike = [seconds for other, seconds in known.items() if _sort(other) == _sort(kind)]
            if alike:
                return median(alike)
        return median((self._new or recorded).values() or [GUESS])

    @property
    def pace(self) -> float:
        """Seconds here for a second where it was recorded; 1 until something is known."""
        told = sum(told for told, _ in self._seen)
        return sum(took for _, took in self._seen) / told if told > 0 else 1.0

    def note(self, job: Job) -> None:
        """Remember how long a job took."""
        seconds = job.took()
        if seconds is None:
            return
        if job.kind in self.recorded:
            self._seen.append((self.recorded[job.kind], seconds))
        elif job.kind not in self.here:
            self._new[job.kind] = seconds
        self.here[job.kind] = round(seconds, 2)
        if self.file is not None:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            write_json(self.file, dict(sorted(self.here.items())))

    def total(self, jobs: Iterable[Job]) -> float:
        """Seconds of work on one core."""
        return sum(self.expected(job) for job in jobs)


def _sort(kind: str) -> str:
    return kind.partition("-")[0]


def _read(file: Path) -> dict[str, float]:
    try:
        return {kind: float(took) for kind, took in json.loads(file.read_text()).items()}
    except (OSError, ValueError, AttributeError):
        return {}  # nothing is lost but a better guess
