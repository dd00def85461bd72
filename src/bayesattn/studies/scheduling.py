"""In which order jobs are done, and how long that will take."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bayesattn.studies.costs import Costs
from bayesattn.studies.engines import Ended, Engine
from bayesattn.studies.jobs import Job, TrainingJob, measurements
from bayesattn.studies.registry import AnyStudy
from bayesattn.studies.study import Tier

LOSSES = 2
"""A job whose process was lost is tried so many times more."""
PATIENCE = 1.0
"""Seconds between two looks at what goes on, for the display's sake."""


def plan(
    studies: Sequence[AnyStudy], tier: Tier, seeds: Sequence[Sequence[int]], folder: Path
) -> dict[str, list[Job]]:
    """The jobs of every study by its id: its trainings, then its measurements.

    Studies that share a training each have it; its name is the same.
    """
    jobs: dict[str, list[Job]] = {}
    for study, own in zip(studies, seeds, strict=True):
        trainings = {
            training.folder: TrainingJob(training)
            for seed in own
            for training in study.trainings(tier, seed).values()
        }
        jobs[study.claim.id] = [*trainings.values(), *measurements(study, tier, own, folder)]
    return jobs


def to_do(jobs: Mapping[str, Sequence[Job]]) -> dict[str, Job]:
    """Jobs that are not done, each once. A training is left out if nobody will look at it."""
    left: dict[str, Job] = {}
    for own in jobs.values():
        open_ones = [job for job in own if not isinstance(job, TrainingJob) and not job.done()]
        needed = {name for job in open_ones for name in job.needs}
        left |= {job.name: job for job in own if job.name in needed and not job.done()}
        left |= {job.name: job for job in open_ones}
    return left


def affordable(
    jobs: Mapping[str, Sequence[Job]], seconds: float, slots: int, costs: Costs
) -> list[str]:
    """As many studies as can be done in `seconds` of time, by id, the cheapest first.

    What a study adds is what it does not share with those already chosen.
    """
    chosen: dict[str, Sequence[Job]] = {}
    while len(chosen) < len(jobs):
        totals = {
            name: costs.total(to_do({**chosen, name: own}).values())
            for name, own in jobs.items()
            if name not in chosen
        }
        name = min(totals, key=lambda name: totals[name])
        if totals[name] > seconds * slots:
            break
        chosen[name] = jobs[name]
    return [name for name in jobs if name in chosen]


def remaining(jobs: Mapping[str, Job], slots: int, costs: Costs) -> float:
    """Seconds until these jobs are done: all slots busy, but no job faster than itself."""
    expected = [costs.expected(job) for job in jobs.values()]
    return max(sum(expected) / slots, *expected) if expected else 0.0


def run_jobs(jobs: Mapping[str, Job], engine: Engine, costs: Costs) -> Iterator[Ended | None]:
    """Do all jobs, as many at once as the engine takes; None when a while passed without an end.

    What others wait for comes first, the longest of it at the start, so that the last ones to
    begin are short; but what can be measured is measured at once, for somebody waits for results.
    """

    def turn(job: Job) -> tuple[bool, float]:
        return isinstance(job, TrainingJob), -costs.expected(job)

    waiting = sorted(jobs.values(), key=turn)
    running: set[str] = set()
    tries: Counter[str] = Counter()
    pending = set(jobs)
    needs = {name: job.needs for name, job in jobs.items()}  # finding out takes a while
    while waiting or running:
        for job in [job for job in waiting if needs[job.name].isdisjoint(pending)]:
            if len(running) >= engine.slots:
                break
            waiting.remove(job)
            running.add(job.name)
            engine.start(job)
        found = engine.wait(PATIENCE)
        for ended in found:
            name = ended.job.name
            running.discard(name)
            tries[name] += 1
            if ended.lost and tries[name] <= LOSSES:
                waiting.insert(0, ended.job)
                continue
            pending.discard(name)
            yield ended
        if not found:
            yield None
