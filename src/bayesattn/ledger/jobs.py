"""The work of claims in pieces: trainings, and measurements of one seed or of a part of it.

Each piece leaves a file behind when it is done and is not done again while that file stands, so it
does not matter which process or machine does it, nor how often everything is stopped in between.
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
    """Train what claims look at."""

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
    """Of the ledger."""
    part: str | None = None
    """One of the study's; None for all of it."""

    @property
    def name(self) -> str:
        return file_name(self.study.claim.id, self.tier, self.part, self.seed)

    @property
    def file(self) -> Path:
        return self.folder / FOLDER / f"{self.name}.json"

    def trainings(self) -> list[TrainingJob]:
        """What must be trained before."""
        return [TrainingJob(own) for own in self.study.needed(self.tier, self.seed, self.part)]

    @property
    def needs(self) -> frozenset[str]:
        return frozenset(job.name for job in self.trainings())

    def measured(self) -> Measured | None:
        """What was measured, if it is there and still stands."""
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
    """Of these seeds, and of each part of them, into the ledger in `folder`."""
    return [
        MeasurementJob(study, tier, seed, folder.absolute(), part)
        for seed in seeds
        for part in study.parts(tier)
    ]


def to_do(measurements: Iterable[MeasurementJob]) -> dict[str, Job]:
    """Jobs that are not done, each once. A training is left out if nobody will look at it."""
    left = [job for job in measurements if not job.done()]
    trainings = {one.name: one for job in left for one in job.trainings()}
    return {
        **{name: one for name, one in trainings.items() if not one.done()},
        **{job.name: job for job in left},
    }


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
    except Exception as error:  # whatever a claim does wrong, the others must still run
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
    """An exception for the record: no folder of this machine is in it."""
    text = "".join(traceback.format_exception(error))
    sentence = " ".join(f"{type(error).__name__}: {error}".split())
    return Failure(sentence=sentence, traceback=re.sub(r'File "([^"]+)"', _short, text))


def _short(match: re.Match[str]) -> str:
    # Where a package is installed says who runs it, not what went wrong.
    path = Path(match[1])
    for root in ("site-packages", "src"):
        if root in path.parts:
            return f'File "{path.as_posix().rpartition(f"/{root}/")[2]}"'
    return f'File "{path.name}"'
