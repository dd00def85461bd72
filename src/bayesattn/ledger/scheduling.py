"""Which jobs there are, and how they are done: trainings first, then what needs them."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bayesattn.errors import UserError
from bayesattn.ledger.engines import Ended, Engine
from bayesattn.ledger.jobs import Job, MeasurementJob, TrainingJob, measurements
from bayesattn.ledger.study import AnyStudy, Tier

LOSSES = 2
"""A job whose process was lost is tried so many times more."""
PATIENCE = 1.0
"""Seconds between two looks at what goes on, for the display's sake."""


@dataclass(frozen=True)
class Plan:
    """The jobs of every claim, by its id."""

    studies: Mapping[str, AnyStudy]
    tier: Tier
    folder: Path
    """Of the ledger."""
    trainings: Mapping[str, Sequence[TrainingJob]]
    """Claims that share a training each have it; its name is the same."""
    measurements: Mapping[str, Sequence[MeasurementJob]]

    def to_do(self) -> dict[str, Job]:
        """Jobs that are not done, each once. A training is left out if nobody will look at it."""
        left: dict[str, Job] = {}
        for name, own in self.measurements.items():
            open_ones = [job for job in own if not job.done()]
            needed = {need for job in open_ones for need in job.needs}
            trainings = [job for job in self.trainings[name] if job.name in needed]
            left |= {job.name: job for job in trainings if not job.done()}
            left |= {job.name: job for job in open_ones}
        return left


def plan(studies: Sequence[AnyStudy], tier: Tier, folder: Path, seeds: int | None = None) -> Plan:
    """What there is to do.

    Args:
        studies: of which claims.
        tier: how much of each.
        folder: of the ledger.
        seeds: number of seeds, those of the recipes if None.
    """
    ranges = {study.claim.id: seeds_of(study, tier, seeds) for study in studies}
    folder = folder.absolute()
    trainings = {
        study.claim.id: {
            training.folder: TrainingJob(training)
            for seed in ranges[study.claim.id]
            for training in study.trainings(tier, seed).values()
        }
        for study in studies
    }
    return Plan(
        {study.claim.id: study for study in studies},
        tier,
        folder,
        {name: list(own.values()) for name, own in trainings.items()},
        {s.claim.id: measurements(s, tier, ranges[s.claim.id], folder) for s in studies},
    )


def seeds_of(study: AnyStudy, tier: Tier, count: int | None) -> range:
    """The seeds to measure: `count` of them, or as many as the recipe says."""
    if tier not in study.recipes:
        tiers = ", ".join(study.recipes)
        raise UserError(f"The claim {study.claim.id} has no {tier} tier: choose one of {tiers}.")
    if count is not None and count < 1:
        raise UserError(f"--seeds must be 1 or more, not {count}.")
    return range(study.recipes[tier].seeds if count is None else count)


def run_jobs(jobs: Mapping[str, Job], engine: Engine) -> Iterator[Ended | None]:
    """Do all jobs, as many at once as the engine takes; None when a while passed without an end.

    A queue: the next job is the first one whose needs are met.
    """
    waiting = list(jobs.values())
    running: set[str] = set()
    losses: Counter[str] = Counter()
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
            losses[name] += ended.lost
            if ended.lost and losses[name] <= LOSSES:
                waiting.insert(0, ended.job)
                continue
            pending.discard(name)
            yield ended
        if not found:
            yield None
