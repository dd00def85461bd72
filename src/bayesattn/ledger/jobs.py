"""The jobs of claims: trainings, and measurements of one seed or of a part of a seed.

A finished job leaves a file, and is not repeated while this file is valid. So any process or
machine can do a job, and the work can be stopped at any time.
"""

import os
import re
import time
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from bayesattn.errors import Interrupted
from bayesattn.files import write_json
from bayesattn.ledger.ledger import Failure
from bayesattn.ledger.measured import (
    FOLDER,
    Measured,
    file_name,
    objection,
    read,
    recipe_hash,
    versions,
)
from bayesattn.ledger.study import AnyStudy, PartedStudy, Tier
from bayesattn.ledger.trained import Training
from bayesattn.ledger.typed import to_plain
from bayesattn.system import commit, keep_memory


@dataclass(frozen=True)
class TrainingJob:
    """Train one model of a claim."""

    training: Training
    needs: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        return self.training.folder.name

    def done(self) -> bool:
        return (self.training.folder / "finished.json").exists()

    def run(self) -> None:
        self.training.train()


@dataclass(frozen=True)
class MeasurementJob:
    """Measure one seed of one claim."""

    study: AnyStudy
    tier: Tier
    seed: int
    folder: Path
    """Folder of the ledger."""
    part: str | None = None
    """One part of the study; None for the whole seed."""

    @property
    def name(self) -> str:
        return file_name(self.study.claim.id, self.tier, self.part, self.seed)

    @property
    def file(self) -> Path:
        return self.folder / FOLDER / f"{self.name}.json"

    def trainings(self) -> list[TrainingJob]:
        """Trainings that must be done before."""
        return [TrainingJob(own) for own in self.study.needed(self.tier, self.seed, self.part)]

    @property
    def needs(self) -> frozenset[str]:
        return frozenset(job.name for job in self.trainings())

    def measured(self) -> Measured | None:
        """The stored measurement, if it exists and is valid."""
        try:
            found = read(self.file)
        except (OSError, ValueError):
            return None
        return None if objection(self.study, found) else found

    def done(self) -> bool:
        return self.measured() is not None

    def run(self) -> None:
        start = time.perf_counter()
        if isinstance(self.study, PartedStudy) and self.part is not None:
            found = self.study.measure_part(self.tier, self.seed, self.part)
        else:
            found = self.study.measure(self.tier, self.seed)
        seconds, claim = round(time.perf_counter() - start, 3), self.study.claim
        measured = Measured(
            claim=claim.id,
            tier=self.tier,
            part=self.part,
            seed=self.seed,
            recipe=recipe_hash(self.study.recipes[self.tier]),
            versions=versions(),
            version=claim.version,
            registered={own.name: own.hash for own in claim.statements},
            commit=commit(),
            seconds=seconds,
            numbers=to_plain(found),
        )
        self.file.parent.mkdir(parents=True, exist_ok=True)
        write_json(self.file, to_plain(measured), checked=True)


Job = TrainingJob | MeasurementJob


def measurements(
    study: AnyStudy, tier: Tier, seeds: Iterable[int], folder: Path
) -> list[MeasurementJob]:
    """Measurements of these seeds, and of their parts, for the ledger in `folder`."""
    return [
        MeasurementJob(study, tier, seed, folder.absolute(), part)
        for seed in seeds
        for part in study.parts(tier)
    ]


def to_do(measurements: Iterable[MeasurementJob]) -> dict[str, Job]:
    """Open jobs, each once, without trainings that no open measurement needs."""
    left = [job for job in measurements if not job.done()]
    trainings = {one.name: one for job in left for one in job.trainings()}
    return {
        **{name: one for name, one in trainings.items() if not one.done()},
        **{job.name: job for job in left},
    }


def attempt(job: Job, runs: str) -> Failure | None:
    """Do a job in this process, on one thread; returns the failure, if any.

    One thread, because sums depend on the number of threads, and because other jobs use the other
    cores.

    Args:
        job: the job.
        runs: folder of trained models.
    """
    os.environ["BAYESATTN_RUNS"] = runs
    keep_memory()
    try:
        with one_thread():
            job.run()
    except Interrupted as stop:
        raise KeyboardInterrupt from stop
    except Exception as error:  # an error of one claim must not stop the others
        return failure(error)
    return None


@contextmanager
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def failure(error: Exception) -> Failure:
    """An exception for the record, without folders of this machine."""
    text = "".join(traceback.format_exception(error))
    sentence = " ".join(f"{type(error).__name__}: {error}".split())
    return Failure(sentence=sentence, traceback=re.sub(r'File "([^"]+)"', _short, text))


def _short(match: re.Match[str]) -> str:
    # The folder of a package tells about the user, not about the error.
    path = Path(match[1])
    for root in ("site-packages", "src"):
        if root in path.parts:
            return f'File "{path.as_posix().rpartition(f"/{root}/")[2]}"'
    return f'File "{path.name}"'
