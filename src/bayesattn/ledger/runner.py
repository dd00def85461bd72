"""Runs the jobs of claims, and writes each claim into the ledger as soon as possible."""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from bayesattn.checks import shortened
from bayesattn.errors import UserError
from bayesattn.files import only_one
from bayesattn.ledger.engines import Ended, Engine, Here, RayWorkers, run_jobs
from bayesattn.ledger.jobs import Job, MeasurementJob, TrainingJob, measurements, to_do
from bayesattn.ledger.judging import first_look, judge_seeds, look_after, seeds_of
from bayesattn.ledger.ledger import NAME, Failure, Record, add_record, set_aside
from bayesattn.ledger.measured import objection, read
from bayesattn.ledger.study import AnyStudy, Tier
from bayesattn.ledger.trained import rename_older_runs, require_possible

MOST_SEEDS = 10_000
"""Largest number of seeds of one claim."""
Tell = Callable[[Mapping[str, Job]], None]
"""Called with the jobs that are left."""


def parse_tier(name: str) -> Tier:
    try:
        return Tier(name)
    except ValueError:
        raise UserError(f"There is no tier {name!r}: choose one of {', '.join(Tier)}.") from None


def run_claims(
    studies: Sequence[AnyStudy],
    tier: Tier,
    folder: Path,
    seeds: int | range | None = None,
    *,
    engine: Engine | None = None,
    again: bool = False,
    tell: Tell = lambda left: None,
) -> Iterator[Record]:
    """Measure claims; each is written to the ledger as soon as possible, then yielded.

    A claim is yielded at every look. If a statement is still undecided and has a look left, the
    seeds up to this look are run. Finished trainings and measurements are not repeated.

    Args:
        studies: the claims.
        tier: of the measurements.
        folder: of the ledger; figures and measured numbers are written there, too.
        seeds: number of seeds, or the seeds; if None, as many as the looks need.
        engine: runs the jobs; this process if None.
        again: repeat finished measurements; models are not trained again.
        tell: called whenever a job has ended, and about once a second.
    """
    with closing(engine or Here()) as engine:
        prepare_folder(folder)
        with (
            only_one(folder, "measuring claims"),
            closing(engine),
        ):  # workers stop before the next claim
            yield from _recorded(studies, tier, folder, seeds, engine, again, tell)


def _recorded(
    studies: Sequence[AnyStudy],
    tier: Tier,
    folder: Path,
    seeds: int | range | None,
    engine: Engine,
    again: bool,
    tell: Tell,
) -> Iterator[Record]:
    rename_older_runs()
    work = Work({study.claim.id: study for study in studies}, tier, folder)
    asked = {name: _first_seeds(study, tier, seeds) for name, study in work.studies.items()}
    if sentence := set_aside(folder / NAME):
        print(sentence, file=sys.stderr)
    for name, study in work.studies.items():
        if again:
            forget(study, tier, folder, seeds_of(study, tier) if seeds is None else asked[name])
        elif tier is not Tier.QUICK:
            require_standing(study, tier, folder)
        work.begin(name, asked[name])
    if not isinstance(engine, RayWorkers):
        trainings = (job.training for job in work.left.values() if isinstance(job, TrainingJob))
        require_possible(trainings, engine.slots)
    tell(work.left)
    yield from work.judged(further=seeds is None)
    for ended in run_jobs(work.jobs, engine):
        if ended is not None:
            work.end(ended)
        yield from work.judged(further=seeds is None)
        tell(work.left)


@dataclass
class Work:
    """Open jobs and their results; jobs are added for further looks."""

    studies: Mapping[str, AnyStudy]
    tier: Tier
    folder: Path
    jobs: dict[str, Job] = field(default_factory=dict[str, Job])
    left: dict[str, Job] = field(default_factory=dict[str, Job])
    failures: dict[str, Failure] = field(default_factory=dict[str, Failure])
    looks: dict[str, list[MeasurementJob]] = field(default_factory=dict[str, list[MeasurementJob]])
    """Measurements that each claim's next look needs."""

    def begin(self, name: str, seeds: Iterable[int]) -> None:
        """Add jobs for more seeds of a claim."""
        self.looks[name] = measurements(self.studies[name], self.tier, seeds, self.folder)
        todo = to_do(self.looks[name]).items()
        new = {name: job for name, job in todo if name not in self.jobs}
        self.jobs |= new
        self.left |= new

    def end(self, ended: Ended) -> None:
        del self.left[ended.job.name]
        if ended.failure is not None:
            self.failures[ended.job.name] = ended.failure

    def judged(self, further: bool) -> Iterator[Record]:
        """Record claims that can be judged; if `further`, add the jobs of their next looks."""
        while name := next((name for name in self.looks if self._complete(name)), None):
            jobs, study = self.looks.pop(name), self.studies[name]
            failed = next((self.failures[j.name] for j in jobs if j.name in self.failures), None)
            quick = self.tier is Tier.QUICK
            only = dict.fromkeys(job.seed for job in jobs) if quick else None
            found = judge_seeds(study, self.tier, self.folder, only, failed)
            add_record(self.folder / NAME, found)
            yield found
            look = look_after(found) if further and not failed else None
            if look is not None:
                self.begin(name, seeds_of(study, self.tier, look)[len(found.seeds) :])

    def _complete(self, name: str) -> bool:
        return all(job.name not in self.left for job in self.looks[name])


def forget(study: AnyStudy, tier: Tier, folder: Path, seeds: Iterable[int]) -> None:
    """Remove the measurements of these seeds, so they are measured again."""
    for job in measurements(study, tier, seeds, folder):
        job.file.unlink(missing_ok=True)


def require_standing(study: AnyStudy, tier: Tier, folder: Path) -> None:
    """Refuse to add seeds beside stored seeds that do not count; nothing is overwritten."""
    for job in measurements(study, tier, seeds_of(study, tier), folder):
        try:
            problem = objection(study, read(job.file))
        except OSError:
            continue
        except ValueError as error:
            problem = f"it cannot be read ({error})"
        if problem:
            raise UserError(
                f"Seed {job.seed} of {study.claim.id} in {folder} does not count: {problem}. "
                "Choose another --out, raise first_seed in the claim's file for fresh seeds, or "
                "measure the old ones again with --again."
            )


def _first_seeds(study: AnyStudy, tier: Tier, asked: int | range | None) -> range:
    """The requested seeds; or those of the first look, or of the quick tier."""
    name = study.claim.id
    if tier not in study.recipes:
        tiers = ", ".join(study.recipes)
        raise UserError(f"The claim {name} has no {tier} tier: choose one of {tiers}.")
    if not study.claim.statements:
        raise UserError(f"The claim {name} has no statements yet: it cannot be judged.")
    if isinstance(asked, range):
        return asked
    if asked is not None:
        return range(study.claim.first_seed, study.claim.first_seed + asked)
    return seeds_of(study, tier, first_look(study.claim))


def parse_seeds(text: str) -> int | range:
    """A number of seeds, or a range of seeds.

    >>> parse_seeds("3"), parse_seeds("4-7")
    (3, range(4, 8))
    """
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)", text)
    if not match:
        raise UserError(f"--seeds is a number of seeds or a range such as 4-7, not {text!r}.")
    last = int(match[2])
    seeds = range(int(match[1]), last + 1) if match[1] else last
    if last > MOST_SEEDS:
        raise UserError(f"--seeds {shortened(last)} is more than {MOST_SEEDS:,}: pass fewer.")
    if not seeds:
        raise UserError(f"--seeds {text} names no seed: pass 1 or more, or a range such as 4-7.")
    return seeds


def prepare_folder(folder: Path) -> Path:
    """Create `folder` and check that a ledger can be written there, before hours of work."""
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
