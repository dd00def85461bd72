"""Runs claims: has their jobs done, and writes each into the ledger as soon as it can."""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bayesattn.drawing import house_style, save_picture
from bayesattn.errors import UserError
from bayesattn.files import write_json
from bayesattn.ledger.engines import Engine, Here, RayWorkers, run_jobs
from bayesattn.ledger.jobs import Job, MeasurementJob, TrainingJob, failure, one_thread, plan, to_do
from bayesattn.ledger.ledger import (
    NAME,
    ExhibitFile,
    Failure,
    FigureFile,
    Record,
    add_record,
    set_aside,
)
from bayesattn.ledger.study import AnyStudy, Tier
from bayesattn.ledger.trained import rename_older_runs, require_possible
from bayesattn.system import commit, environment

Tell = Callable[[Mapping[str, Job]], None]
"""Is given the jobs that are left."""


def parse_tier(name: str) -> Tier:
    """The tier called `name`."""
    try:
        return Tier(name)
    except ValueError:
        raise UserError(f"There is no tier {name!r}: choose one of {', '.join(Tier)}.") from None


def run_claims(
    studies: Sequence[AnyStudy],
    tier: Tier,
    folder: Path,
    seeds: int | None = None,
    *,
    engine: Engine | None = None,
    again: bool = False,
    tell: Tell = lambda left: None,
) -> Iterator[Record]:
    """Measure claims; each is in the ledger before it is yielded, as soon as it can be.

    What was trained or measured before is not done again.

    Args:
        studies: which claims.
        tier: how much of each.
        folder: of the ledger; figures and measured numbers are written there, too.
        seeds: number of seeds, those of the recipes if None.
        engine: who does the work; this process if None.
        again: measure what was measured before; models are not trained again.
        tell: called whenever a job has ended, and about every second.
    """
    engine = engine or Here()
    try:
        rename_older_runs()
        planned = plan(studies, tier, folder, seeds)
        if sentence := set_aside(prepare_folder(folder)):
            print(sentence, file=sys.stderr)
        for job in (job for own in planned.values() for job in own if again):
            job.file.unlink(missing_ok=True)
        left = to_do(planned)
        if not isinstance(engine, RayWorkers):
            trainings = (job.training for job in left.values() if isinstance(job, TrainingJob))
            require_possible(trainings, engine.slots)
        failures: dict[str, Failure] = {}
        waiting = dict(planned)

        def finished() -> Iterator[Record]:
            for name, own in list(waiting.items()):
                if all(job.name not in left for job in own):
                    del waiting[name]
                    failed = next((failures[job.name] for job in own if job.name in failures), None)
                    done = record(own, failed)
                    add_record(folder / NAME, done)
                    yield done

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


def record(jobs: Sequence[MeasurementJob], failed: Failure | None = None) -> Record:
    """Judge and draw what one claim's jobs have measured; a failure, then or now, is recorded."""
    study, tier, folder = jobs[0].study, jobs[0].tier, jobs[0].folder
    seeds = tuple(dict.fromkeys(job.seed for job in jobs))
    numbers: dict[int, Any] = {}
    seconds = 0.0
    for job in jobs:
        if measured := job.measured():
            if job.part is None:
                numbers[job.seed] = measured["numbers"]
            else:
                numbers.setdefault(job.seed, {})[job.part] = measured["numbers"]
            seconds += measured["seconds"]
    verdict, figures, exhibits = None, (), ()
    if failed is None:
        try:
            found = study.read(numbers)
            verdict = study.verdict(tier, found)
            json.dumps(asdict(verdict), allow_nan=False)  # what the ledger cannot hold fails here
            figures = tuple(_figures(study, tier, found, folder))
            with one_thread():
                exhibits = tuple(_exhibits(study, tier, found, folder))
        except Exception as error:  # whatever a claim does wrong, the others must still run
            verdict, failed = None, failure(error)
    return Record(
        claim=study.claim,
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


def _figures(
    study: AnyStudy, tier: Tier, found: Mapping[int, Any], folder: Path
) -> Iterator[FigureFile]:
    with house_style():
        for picture in study.draw(tier, found):
            file = f"figures/{study.claim.id}-{picture.name}.svg"
            save_picture(picture, folder / file)
            yield FigureFile(file=file, caption=picture.caption, alt=picture.alt)


def _exhibits(
    study: AnyStudy, tier: Tier, found: Mapping[int, Any], folder: Path
) -> Iterator[ExhibitFile]:
    for exhibit in study.exhibits(tier, found):
        file = f"exhibits/{study.claim.id}-{exhibit.kind}.json"
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        write_json(folder / file, exhibit.data)
        yield ExhibitFile(
            kind=exhibit.kind, title=exhibit.title, caption=exhibit.caption, file=file
        )
