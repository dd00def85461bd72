"""Runs claims: has their jobs done, and writes each into the ledger as soon as it can."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bayesattn.drawing import house_style, save_picture
from bayesattn.errors import UserError
from bayesattn.files import write_json
from bayesattn.ledger.engines import Engine, Here
from bayesattn.ledger.jobs import Job, MeasurementJob, attempt, failure, measurements, one_thread
from bayesattn.ledger.ledger import (
    NAME,
    ExhibitFile,
    Failure,
    FigureFile,
    Record,
    add_record,
)
from bayesattn.ledger.scheduling import Plan, plan, run_jobs, seeds_of
from bayesattn.ledger.study import AnyStudy, Tier
from bayesattn.ledger.trained import runs_folder
from bayesattn.system import commit, environment

Tell = Callable[[Mapping[str, Job]], None]
"""Is given the jobs that are left."""


def parse_tier(name: str) -> Tier:
    """The tier called `name`."""
    try:
        return Tier(name)
    except ValueError:
        raise UserError(f"There is no tier {name!r}: choose one of {', '.join(Tier)}.") from None


def prepare_folder(folder: Path) -> Path:
    """Make `folder` and be sure that a ledger can be written there, before hours of work."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UserError(
            f"Cannot write to {folder} ({error.strerror}): choose another --out."
        ) from None
    return folder / NAME


def run_study(study: AnyStudy, tier: Tier, folder: Path, count: int | None = None) -> Record:
    """Measure one claim here and now, whatever was measured before; a crash is recorded, too.

    Args:
        study: what to run.
        tier: how much of it.
        folder: of the ledger; figures and exhibits are written there.
        count: number of seeds, the recipe's if None.
    """
    jobs = measurements(study, tier, seeds_of(study, tier, count), folder)
    for job in jobs:
        if failed := attempt(job, str(runs_folder())):
            return record(study, tier, jobs, failed)
    return record(study, tier, jobs)


def run_studies(
    studies: Sequence[AnyStudy], tier: Tier, folder: Path, count: int | None = None
) -> Iterator[Record]:
    """Plan and run studies here; see `plan` and `run_plan`."""
    return run_plan(plan(studies, tier, folder, count))


def run_plan(
    planned: Plan, engine: Engine | None = None, tell: Tell = lambda left: None
) -> Iterator[Record]:
    """Do what is planned; each claim is in the ledger before it is yielded, as soon as it can be.

    What was trained or measured before is not done again.

    Args:
        planned: the jobs.
        engine: who does the work; this process if None.
        tell: called whenever a job has ended, and about every second.
    """
    engine = engine or Here()
    left = planned.to_do()
    failures: dict[str, Failure] = {}
    waiting = dict(planned.studies)

    def finished() -> Iterator[Record]:
        for name, study in list(waiting.items()):
            own = planned.measurements[name]
            if all(job.name not in left for job in own):
                del waiting[name]
                failed = next((failures[job.name] for job in own if job.name in failures), None)
                done = record(study, planned.tier, own, failed)
                add_record(planned.folder / NAME, done)
                yield done

    try:
        tell(left)
        yield from finished()
        for ended in run_jobs(dict(left), engine):
            if ended is not None:
                del left[ended.job.name]
                if ended.failure is not None:
                    failures[ended.job.name] = ended.failure
            tell(left)
            yield from finished()
    finally:
        engine.close()


def record(
    study: AnyStudy, tier: Tier, jobs: Sequence[MeasurementJob], failed: Failure | None = None
) -> Record:
    """Judge and draw what the jobs have measured; what `failed` before, or now, is recorded."""
    folder = jobs[0].folder
    seeds = tuple(dict.fromkeys(job.seed for job in jobs))
    numbers: dict[int, Any] = {}
    seconds = 0.0
    for job in jobs:
        if measured := job.measured():
            if job.part is None:
                numbers[job.seed] = measured.numbers
            else:
                numbers.setdefault(job.seed, {})[job.part] = measured.numbers
            seconds += measured.seconds
    verdict, figures, exhibits = None, (), ()
    if failed is None:
        try:
            found = study.read(numbers)
            verdict = study.judge(tier, found)
            json.dumps(asdict(verdict), allow_nan=False)  # what the ledger cannot hold fails here
            figures = _draw(study, tier, found, folder)
            with one_thread():
                exhibits = _exhibit(study, tier, found, folder)
        except Exception as error:  # whatever a claim does wrong, the others must still run
            verdict, failed = None, failure(error)
    return Record(
        claim=study.claim,
        method=study.method,
        null=study.null,
        tier=tier,
        seeds=seeds,
        recipe=asdict(study.recipes[tier]),
        verdict=verdict,
        failure=failed,
        numbers=numbers,
        figures=figures,
        command=f"bayesattn claims run {study.claim.id} --tier {tier} --seeds {len(seeds)}",
        seconds=round(seconds, 3),
        commit=commit(),
        environment=environment(),
        exhibits=exhibits,
    )


def _draw(
    study: AnyStudy, tier: Tier, found: Mapping[int, Any], folder: Path
) -> tuple[FigureFile, ...]:
    files: list[FigureFile] = []
    with house_style():
        for picture in study.draw(tier, found):
            file = f"figures/{study.claim.id}-{picture.name}.svg"
            save_picture(picture, folder / file)
            files.append(FigureFile(file=file, caption=picture.caption, alt=picture.alt))
    return tuple(files)


def _exhibit(
    study: AnyStudy, tier: Tier, found: Mapping[int, Any], folder: Path
) -> tuple[ExhibitFile, ...]:
    files: list[ExhibitFile] = []
    for exhibit in study.exhibits(tier, found):
        file = f"exhibits/{study.claim.id}-{exhibit.kind}.json"
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        write_json(folder / file, exhibit.data)
        shown = {"kind": exhibit.kind, "title": exhibit.title, "caption": exhibit.caption}
        files.append(ExhibitFile(**shown, file=file))
    return tuple(files)
