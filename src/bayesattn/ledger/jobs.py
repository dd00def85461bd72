"""The work of claims in pieces: trainings, and measurements of one seed or of a part of it.

Each piece leaves a file behind when it is done and is not done again while that file stands, so it
does not matter which process or machine does it, nor how often everything is stopped in between.
"""

import hashlib
import json
import os
import re
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch

from bayesattn import __version__
from bayesattn.files import write_json
from bayesattn.ledger.ledger import Failure
from bayesattn.ledger.study import AnyStudy, PartedStudy, Tier, Training
from bayesattn.ledger.typed import to_plain
from bayesattn.runs.errors import Interrupted
from bayesattn.system import commit, keep_memory

FOLDER = "measured"
"""Beside the ledger: one file per claim, tier, part and seed."""


class Job(Protocol):
    """A piece of work."""

    @property
    def name(self) -> str:
        """No other job has it."""
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


@dataclass(frozen=True)
class TrainingJob:
    """Train what claims look at."""

    training: Training
    needs: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """That of its run."""
        return self.training.folder.name

    def done(self) -> bool:
        """Whether the run is complete."""
        return (self.training.folder / "finished.json").exists()

    def run(self) -> None:
        """Train, or go on training."""
        self.training.train()


class Measured(NamedTuple):
    """What a measurement left behind."""

    numbers: Any
    """Plain JSON."""
    seconds: float


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
        """Claim, tier, part and seed."""
        part = "" if self.part is None else f"-{_file_name(self.part)}"
        return f"{self.study.claim.id}-{self.tier}{part}-{self.seed}"

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

    def origin(self) -> dict[str, str]:
        """What decides the numbers; measured ones count only while this is the same."""
        recipe = self.study.recipes[self.tier]
        how = {name: value for name, value in asdict(recipe).items() if name not in recipe.wishes}
        config = hashlib.sha256(json.dumps(how, sort_keys=True).encode()).hexdigest()[:16]
        versions = {"bayesattn": __version__, "torch": torch.__version__}
        return {"claim": self.study.claim.id, "config": config, **versions}

    def measured(self) -> Measured | None:
        """The result, if it is there, still stands and is what the claim measures now."""
        try:
            found = json.loads(self.file.read_text(encoding="utf-8"))
            if found["origin"] != self.origin():
                return None
            numbers = found["numbers"]
            self.study.read({0: numbers if self.part is None else {self.part: numbers}})
            return Measured(numbers, found["seconds"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def done(self) -> bool:
        """Whether it was measured, by this version and the recipe of now."""
        return self.measured() is not None

    def run(self) -> None:
        """Measure, and keep the numbers."""
        start = time.perf_counter()
        numbers = to_plain(self._measure())
        seconds = round(time.perf_counter() - start, 3)
        found = {"origin": self.origin(), "commit": commit(), "seconds": seconds}
        self.file.parent.mkdir(parents=True, exist_ok=True)
        write_json(self.file, {**found, "numbers": numbers})

    def _measure(self) -> object:
        if isinstance(self.study, PartedStudy) and self.part is not None:
            return self.study.measure_part(self.tier, self.seed, self.part)
        return self.study.measure(self.tier, self.seed)


def measurements(
    study: AnyStudy, tier: Tier, seeds: Sequence[int], folder: Path
) -> list[MeasurementJob]:
    """All measurements of a claim."""
    parts = study.parts(tier) if isinstance(study, PartedStudy) else (None,)
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
    except Exception as error:  # whatever a claim does wrong, the others must still run
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
