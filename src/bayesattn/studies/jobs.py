"""The work of studies in pieces: trainings, and measurements of one seed or of a part of it.

Each piece leaves a file behind when it is done and is not done again while that file stands, so it
does not matter which process or machine does it, nor how often everything is stopped in between.
"""

import inspect
import json
import math
import os
import re
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from bayesattn.environment import commit
from bayesattn.studies.ledger import Failure
from bayesattn.studies.provenance import digest
from bayesattn.studies.registry import AnyStudy
from bayesattn.studies.study import Numbers, Tier, Training
from bayesattn.training.errors import Interrupted
from bayesattn.training.files import write_json
from bayesattn.training.machine import keep_memory

FOLDER = "measured"
"""Beside the ledger: one file per study, tier, part and seed."""


class Job(Protocol):
    """A piece of work."""

    @property
    def name(self) -> str:
        """No other job has it."""
        ...

    @property
    def kind(self) -> str:
        """The same for all seeds; how long it takes is remembered under this name."""
        ...

    @property
    def needs(self) -> frozenset[str]:
        """Names of jobs that come before."""
        ...

    def done(self) -> bool:
        """Whether its result is there."""
        ...

    def run(self) -> None:
        """Do it."""
        ...

    def took(self) -> float | None:
        """Seconds it took, over all its parts if it was stopped in between; None if not done."""
        ...


@dataclass(frozen=True)
class TrainingJob:
    """Train what studies look at."""

    training: Training
    needs: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """That of its run."""
        return self.training.folder.name

    @property
    def kind(self) -> str:
        """That of the run with the first seed."""
        return self.training.kind

    def done(self) -> bool:
        """Whether the run is complete."""
        return (self.training.folder / "finished.json").exists()

    def run(self) -> None:
        """Train, or go on training."""
        self.training.train()

    def took(self) -> float | None:
        """As the run says."""
        try:
            finished = (self.training.folder / "finished.json").read_text(encoding="utf-8")
            return float(json.loads(finished)["seconds"])
        except (OSError, ValueError, KeyError, TypeError):
            return None


@dataclass(frozen=True)
class MeasurementJob:
    """Measure one seed of one study."""

    study: AnyStudy
    tier: Tier
    seed: int
    folder: Path
    """Of the ledger."""
    part: str | None = None
    """One of the study's; None for all of it."""

    @property
    def name(self) -> str:
        """Study, tier, part and seed."""
        return f"{self.kind}-{self.seed}"

    @property
    def kind(self) -> str:
        """Study, tier and part."""
        whole = f"{self.study.claim.id}-{self.tier}"
        return whole if self.part is None else f"{whole}-{_file_name(self.part)}"

    @property
    def needs(self) -> frozenset[str]:
        """Its trainings."""
        trainings = self.study.trainings(self.tier, self.seed)
        wanted = trainings if self.part is None else [self.part]
        return frozenset(trainings[name].folder.name for name in wanted)

    @property
    def file(self) -> Path:
        """What is measured goes here."""
        return self.folder / FOLDER / f"{self.name}.json"

    def origin(self) -> dict[str, Any]:
        """What decides the numbers; measured ones count only while this is the same."""
        recipe = self.study.recipes[self.tier]
        how = {name: value for name, value in asdict(recipe).items() if name not in recipe.wishes}
        file = inspect.getsourcefile(type(self.study))
        assert file is not None
        decisive = json.loads(json.dumps(how))
        return {"recipe": decisive, "sources": digest(Path(file)), "torch": torch.__version__}

    def measured(self) -> dict[str, Any] | None:
        """numbers, seconds and commit, if they are there and still stand."""
        try:
            found = json.loads(self.file.read_text(encoding="utf-8"))
            return found if found["origin"] == self.origin() else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def done(self) -> bool:
        """Whether it was measured, by the code and the recipe of now."""
        return self.measured() is not None

    def run(self) -> None:
        """Measure, and keep the numbers."""
        start = time.perf_counter()
        numbers = plain(self._measure())
        seconds = round(time.perf_counter() - start, 3)
        found = {"origin": self.origin(), "commit": commit(), "seconds": seconds}
        self.file.parent.mkdir(parents=True, exist_ok=True)
        write_json(self.file, {**found, "numbers": numbers})

    def took(self) -> float | None:
        """As the file says."""
        found = self.measured()
        return None if found is None else found["seconds"]

    def _measure(self) -> Numbers:
        if self.part is None:
            return self.study.measure(self.tier, self.seed)
        return self.study.measure_part(self.tier, self.seed, self.part)


def measurements(
    study: AnyStudy, tier: Tier, seeds: Sequence[int], folder: Path
) -> list[MeasurementJob]:
    """All measurements of a study."""
    parts = study.parts(tier) or (None,)
    return [MeasurementJob(study, tier, seed, folder, part) for seed in seeds for part in parts]


def attempt(job: Job, runs: str) -> Failure | None:
    """Do a job in this process, on one thread; what went wrong, if something did.

    One thread, because sums over several come out differently for different numbers of them, and
    because there are other jobs for the other cores.

    Args:
        job: what to do.
        runs: folder of trained models.
    """
    os.environ["BAYESATTN_RUNS"] = runs
    keep_memory()
    try:
        with one_thread():
            job.run()
    except Interrupted as stop:
        raise KeyboardInterrupt from stop
    except Exception as error:  # whatever a study does wrong, the others must still run
        return failure(error)
    return None


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one core in here."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def plain(numbers: Numbers) -> Numbers:
    """The numbers as Python's own, which JSON can hold; NaN and infinity are refused."""
    found: dict[str, float | Sequence[float]] = {}
    for name, value in numbers.items():
        several = isinstance(value, Sequence)
        values = [v if isinstance(v, int) else float(v) for v in (value if several else [value])]
        if not all(math.isfinite(v) for v in values):
            raise ValueError(f"the measured {name!r} is not finite: {value}")
        found[name] = values if several else values[0]
    return found


def failure(error: Exception) -> Failure:
    """An exception for the record: no folder of this machine is in it."""
    text = "".join(traceback.format_exception(error))
    sentence = " ".join(f"{type(error).__name__}: {error}".split())
    return Failure(sentence=sentence, traceback=re.sub(r'File "([^"]+)"', _short, text))


def _file_name(part: str) -> str:
    """What a file can be called.

    >>> _file_name("RoPE, YaRN + SSMax")
    'rope-yarn-ssmax'
    """
    return re.sub(r"[^a-z0-9]+", "-", part.lower()).strip("-")


def _short(match: re.Match[str]) -> str:
    # Where a package is installed says who runs it, not what went wrong.
    path = Path(match[1])
    for root in ("site-packages", "src"):
        if root in path.parts:
            return f'File "{path.as_posix().rpartition(f"/{root}/")[2]}"'
    return f'File "{path.name}"'
