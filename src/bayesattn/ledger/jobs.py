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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from bayesattn import __version__
from bayesattn.errors import Interrupted, UserError
from bayesattn.files import write_json
from bayesattn.ledger.ledger import Failure
from bayesattn.ledger.study import AnyStudy, PartedStudy, Tier
from bayesattn.ledger.trained import Training
from bayesattn.ledger.typed import to_plain
from bayesattn.system import commit, keep_memory

FOLDER = "measured"
"""Beside the ledger: one file per claim, tier, part and seed."""


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
        part = "" if self.part is None else f"-{_file_name(self.part)}"
        return f"{self.study.claim.id}-{self.tier}{part}-{self.seed}"

    @property
    def file(self) -> Path:
        return self.folder / FOLDER / f"{self.name}.json"

    def trainings(self) -> list[TrainingJob]:
        """What must be trained before."""
        trainings = self.study.trainings(self.tier, self.seed).items()
        return [TrainingJob(own) for name, own in trainings if self.part in (None, name)]

    @property
    def needs(self) -> frozenset[str]:
        return frozenset(job.name for job in self.trainings())

    def origin(self) -> dict[str, str]:
        """What decides the numbers; measured ones count only while this is the same."""
        recipe = self.study.recipes[self.tier]
        how = {name: value for name, value in asdict(recipe).items() if name not in recipe.wishes}
        config = hashlib.sha256(json.dumps(how, sort_keys=True).encode()).hexdigest()[:16]
        versions = {"bayesattn": __version__, "torch": torch.__version__}
        return {"claim": self.study.claim.id, "config": config, **versions}

    def measured(self) -> dict[str, Any] | None:
        """Numbers and seconds, if they are there, still stand and are what the claim measures."""
        try:
            found = json.loads(self.file.read_text(encoding="utf-8"))
            numbers = found["numbers"]
            self.study.read({0: numbers if self.part is None else {self.part: numbers}})
            return found if found["origin"] == self.origin() else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def done(self) -> bool:
        return self.measured() is not None

    def run(self) -> None:
        start = time.perf_counter()
        if isinstance(self.study, PartedStudy) and self.part is not None:
            found = self.study.measure_part(self.tier, self.seed, self.part)
        else:
            found = self.study.measure(self.tier, self.seed)
        numbers, seconds = to_plain(found), round(time.perf_counter() - start, 3)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        which = {"tier": self.tier, "part": self.part, "seed": self.seed}
        about = {**which, "origin": self.origin(), "commit": commit(), "seconds": seconds}
        write_json(self.file, {**about, "numbers": numbers})


Job = TrainingJob | MeasurementJob
Plan = Mapping[str, Sequence[MeasurementJob]]
"""What is to be measured of every claim, by its id."""


def plan(studies: Iterable[AnyStudy], tier: Tier, folder: Path, seeds: int | None = None) -> Plan:
    """All measurements of claims into the ledger in `folder`; the recipes' seeds if None."""
    folder = folder.absolute()
    return {
        study.claim.id: [
            MeasurementJob(study, tier, seed, folder, part)
            for seed in seeds_of(study, tier, seeds)
            for part in (study.parts(tier) if isinstance(study, PartedStudy) else (None,))
        ]
        for study in studies
    }


def seeds_of(study: AnyStudy, tier: Tier, count: int | None) -> range:
    """The seeds to measure: `count` of them, or as many as the recipe says."""
    if tier not in study.recipes:
        tiers = ", ".join(study.recipes)
        raise UserError(f"The claim {study.claim.id} has no {tier} tier: choose one of {tiers}.")
    if count is not None and count < 1:
        raise UserError(f"--seeds must be 1 or more, not {count}.")
    return range(study.recipes[tier].seeds if count is None else count)


def to_do(planned: Plan) -> dict[str, Job]:
    """Jobs that are not done, each once. A training is left out if nobody will look at it."""
    left: dict[str, Job] = {}
    for jobs in planned.values():
        open_ones = [job for job in jobs if not job.done()]
        trainings = {one.name: one for job in open_ones for one in job.trainings()}
        left |= {name: one for name, one in trainings.items() if not one.done()}
        left |= {job.name: job for job in open_ones}
    return left


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
