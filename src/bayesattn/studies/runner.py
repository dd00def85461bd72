"""Runs studies: has their jobs done, and writes each study into the ledger as soon as it can."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from bayesattn.drawing import house_style, save_picture
from bayesattn.environment import commit, environment
from bayesattn.errors import UserError
from bayesattn.studies.costs import Costs
from bayesattn.studies.engines import Ended, Engine, Here
from bayesattn.studies.jobs import Job, MeasurementJob, attempt, failure, measurements, one_thread
from bayesattn.studies.ledger import (
    NAME,
    ExhibitFile,
    Failure,
    FigureFile,
    Record,
    add_record,
)
from bayesattn.studies.registry import AnyStudy
from bayesattn.studies.scheduling import plan, run_jobs, to_do
from bayesattn.studies.study import Numbers, Tier
from bayesattn.studies.trained import runs_folder
from bayesattn.training.files import write_json

Tell = Callable[[Mapping[str, Job], Ended | None], None]
"""Is given the jobs that are left, and what has just ended, if something has."""


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


def seeds_of(study: AnyStudy, tier: Tier, count: int | None) -> range:
    """The seeds to measure: `count` of them, or as many as the recipe says."""
    if tier not in study.recipes:
        tiers = ", ".join(study.recipes)
        raise UserError(f"The study {study.claim.id} has no {tier} tier: choose one of {tiers}.")
    if count is not None and count < 1:
        raise UserError(f"--seeds must be 1 or more, not {count}.")
    return range(study.recipes[tier].seeds if count is None else count)


def run_study(study: AnyStudy, tier: Tier, folder: Path, count: int | None = None) -> Record:
    """Measure one study here and now, whatever was measured before; a crash is recorded, too.

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
    studies: Sequence[AnyStudy],
    tier: Tier,
    folder: Path,
    count: int | None = None,
    engine: Engine | None = None,
    costs: Costs | None = None,
    tell: Tell = lambda left, ended: None,
) -> Iterator[Record]:
    """Run studies; each is in the ledger before it is yielded, in the order in which they end.

    What was trained or measured before is not done again.

    Args:
        studies: what to run.
        tier: how much of each.
        folder: of the ledger.
        count: number of seeds, those of the recipes if None.
        engine: who does the work; this process if None.
        costs: experience to plan by, which grows.
        tell: called whenever a job has ended, and about every second.
    """
    engine, costs = engine or Here(), costs or Costs()
    ranges = [seeds_of(study, tier, count) for study in studies]
    jobs = plan(studies, tier, ranges, folder.absolute())
    left = to_do(jobs)
    failures: dict[str, Failure] = {}
    waiting = {study.claim.id: study for study in studies}

    def finished() -> Iterator[Record]:
        for name, study in list(waiting.items()):
            own = [job for job in jobs[name] if isinstance(job, MeasurementJob)]
            if all(job.name not in left for job in own):
                del waiting[name]
                failed = next((failures[job.name] for job in own if job.name in failures), None)
                done = record(study, tier, own, failed)
                add_record(folder / NAME, done)
                yield done

    try:
        tell(left, None)
        yield from finished()
        for ended in run_jobs(dict(left), engine, costs):
            if ended is not None:
                del left[ended.job.name]
                if ended.failure is None:
                    costs.note(ended.job)
                else:
                    failures[ended.job.name] = ended.failure
            tell(left, ended)
            yield from finished()
    finally:
        engine.close()


def record(
    study: AnyStudy, tier: Tier, jobs: Sequence[MeasurementJob], failed: Failure | None = None
) -> Record:
    """Judge and draw what the jobs have measured; what `failed` before, or now, is recorded."""
    folder = jobs[0].folder
    seeds = tuple(dict.fromkeys(job.seed for job in jobs))
    numbers: dict[int, Numbers] = {}
    seconds = 0.0
    for job in jobs:
        if found := job.measured():
            numbers[job.seed] = {**numbers.get(job.seed, {}), **found["numbers"]}
            seconds += found["seconds"]
    verdict, figures, exhibits = None, (), ()
    if failed is None:
        try:
            verdict = study.judge(tier, numbers)
            json.dumps(asdict(verdict), allow_nan=False)  # what the ledger cannot hold fails here
            figures = _draw(study, tier, numbers, folder)
            with one_thread():
                exhibits = _exhibit(study, tier, numbers, folder)
        except Exception as error:  # whatever a study does wrong, the others must still run
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
        command=f"bayesattn study run {study.claim.id} --tier {tier} --seeds {len(seeds)}",
        seconds=round(seconds, 3),
        commit=commit(),
        environment=environment(),
        exhibits=exhibits,
    )


def _draw(
    study: AnyStudy, tier: Tier, numbers: Mapping[int, Numbers], folder: Path
) -> tuple[FigureFile, ...]:
    files: list[FigureFile] = []
    with house_style():
        for picture in study.draw(tier, numbers):
            file = f"figures/{study.claim.id}-{picture.name}.svg"
            save_picture(picture, folder / file)
            files.append(FigureFile(file=file, caption=picture.caption, alt=picture.alt))
    return tuple(files)


def _exhibit(
    study: AnyStudy, tier: Tier, numbers: Mapping[int, Numbers], folder: Path
) -> tuple[ExhibitFile, ...]:
    files: list[ExhibitFile] = []
    for exhibit in study.exhibits(tier, numbers):
        file = f"exhibits/{study.claim.id}-{exhibit.kind}.json"
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        write_json(folder / file, exhibit.data)
        shown = {"kind": exhibit.kind, "title": exhibit.title, "caption": exhibit.caption}
        files.append(ExhibitFile(**shown, file=file))
    return tuple(files)
