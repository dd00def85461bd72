"""`bayesattn study list | run | show`."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

from rich.console import Console
from tyro.conf import Positional, arg

from bayesattn.console import show_rows, write_json
from bayesattn.errors import UserError
from bayesattn.studies import words
from bayesattn.studies.costs import Costs
from bayesattn.studies.demand import require_possible
from bayesattn.studies.display import Display
from bayesattn.studies.engines import Engine, local_engine
from bayesattn.studies.jobs import Job, MeasurementJob
from bayesattn.studies.ledger import NAME, Ledger, Record, set_aside
from bayesattn.studies.registry import AnyStudy, all_studies, find_study
from bayesattn.studies.runner import parse_tier, prepare_folder, run_studies, seeds_of
from bayesattn.studies.scheduling import affordable, plan, to_do
from bayesattn.studies.study import Tier
from bayesattn.studies.trained import runs_folder

JsonTarget = Annotated[str | None, arg(metavar="FILE")]


@dataclass(frozen=True, kw_only=True)
class List:
    """List the claims that can be measured."""

    json: JsonTarget = None
    """Write JSON to this file ("-": standard output) instead of a table."""

    def run(self) -> int:
        """Print the studies."""
        studies = all_studies()
        if self.json:
            rows = [{**asdict(s.claim), "tiers": [*map(str, s.recipes)]} for s in studies]
            write_json(rows, self.json)
        else:
            show_rows(
                [
                    {
                        "study": study.claim.id,
                        "claim": study.claim.statement,
                        "reported": study.claim.reported,
                        "tiers": ", ".join(study.recipes),
                    }
                    for study in studies
                ]
            )
        return 0


@dataclass(frozen=True, kw_only=True)
class Run:
    """Measure claims and write them into a ledger; a crash gives exit code 1, a refutation 0."""

    names: Annotated[Positional[tuple[str, ...]], arg(metavar="[STUDY ...]")] = ()
    """Studies to run; `bayesattn study list` shows them."""
    all: bool = False
    """Run every study."""
    skip: Annotated[tuple[str, ...], arg(metavar="[STUDY ...]")] = ()
    """With --all: every study but these."""
    tier: Annotated[str, arg(metavar="TIER")] = "quick"
    """How much to compute: quick, full or paper."""
    seeds: Annotated[int | None, arg(metavar="N")] = None
    """Number of seeds; the study's own if not given."""
    budget: Annotated[float | None, arg(metavar="MINUTES")] = None
    """Run only what can be done in this time, and say what is left out."""
    again: bool = False
    """Measure again what was measured already; models are not trained again."""
    out: Path = Path("report")
    """Folder of ledger.json, figures and measured numbers."""
    workers: Annotated[int | None, arg(metavar="N")] = None
    """Jobs at once, one core each; as many as there are cores if not given."""
    on: Annotated[Literal["here", "ray"], arg(metavar="here|ray")] = "here"
    """Who does the work: this machine, or a Ray cluster."""
    address: Annotated[str | None, arg(metavar="HOST:PORT")] = None
    """Of the cluster; without it Ray finds one, or starts one on this machine."""
    json: JsonTarget = None
    """Write the records as JSON to this file ("-": standard output) instead of a table."""

    def run(self) -> int:
        """Run the studies."""
        if bool(self.names) == self.all:
            raise UserError("Name the studies to run, or pass --all; `bayesattn study list`.")
        if self.address and self.on != "ray":
            raise UserError("--address is that of a Ray cluster: pass --on ray with it.")
        tier = parse_tier(self.tier)
        studies = choose(tier, self.names, self.skip)
        records = measure(
            studies,
            tier,
            self.out,
            self.seeds,
            workers=self.workers,
            budget=self.budget,
            again=self.again,
            ray=(self.address or "") if self.on == "ray" else None,
        )
        if self.json:
            write_json([asdict(record) for record in records], self.json)
        else:
            show_rows(result_rows(records))
        return exit_code(records)


@dataclass(frozen=True, kw_only=True)
class Show:
    """Show one claim, how it is measured, and its verdict if it was measured already."""

    name: Annotated[Positional[str], arg(metavar="STUDY")]
    """Its name; `bayesattn study list` shows them."""
    out: Path = Path("report")
    """Folder of the ledger to look in."""
    json: JsonTarget = None
    """Write JSON to this file ("-": standard output) instead of text."""

    def run(self) -> int:
        """Print the claim."""
        study = find_study(self.name)
        path = self.out / NAME
        record = Ledger.load(path).records.get(self.name) if path.exists() else None
        if self.json:
            claim = {**asdict(study.claim), "method": study.method, "null": study.null}
            write_json({**claim, "record": asdict(record) if record else None}, self.json)
            return 0
        lines = {
            "study": study.claim.id,
            "claim": study.claim.statement,
            "source": study.claim.source,
            "reported": study.claim.reported,
            "method": study.method,
            "null": study.null,
            "tiers": ", ".join(f"{t} (seeds: {r.seeds})" for t, r in study.recipes.items()),
            **_found(study, record),
        }
        console = Console(markup=False, highlight=False)
        for name, text in lines.items():
            console.print(f"{name:9} {text}", soft_wrap=not console.is_terminal)
        return 0


def _found(study: AnyStudy, record: Record | None) -> dict[str, str]:
    if record is None:
        return {"verdict": f"not measured yet: bayesattn study run {study.claim.id}"}
    found = {"measured": words.measured(record), "verdict": words.verdict(record)}
    if record.verdict:
        found["reason"] = record.verdict.reason
    elif record.failure:
        found["error"] = f"{record.failure.sentence}\n{record.failure.traceback}"
    return {**found, "again": record.command}


def choose(tier: Tier, only: Sequence[str] = (), skip: Sequence[str] = ()) -> list[AnyStudy]:
    """The studies named in `only`, or all that have this tier, without those in `skip`."""
    unwanted = {find_study(name).claim.id for name in skip}
    if only:
        studies = [find_study(name) for name in dict.fromkeys(only)]
    else:
        studies = all_studies()
        if without := [study.claim.id for study in studies if tier not in study.recipes]:
            print(f"Left out, having no {tier} tier: {', '.join(without)}.", file=sys.stderr)
        studies = [study for study in studies if tier in study.recipes]
    chosen = [study for study in studies if study.claim.id not in unwanted]
    if not chosen:
        raise UserError("No study is left to run: skip fewer.")
    return chosen


def measure(
    studies: Sequence[AnyStudy],
    tier: Tier,
    out: Path,
    seeds: int | None = None,
    *,
    workers: int | None = None,
    budget: float | None = None,
    again: bool = False,
    ray: str | None = None,
) -> list[Record]:
    """Run studies into the ledger of `out`, with progress on standard error.

    Args:
        studies: what to run.
        tier: how much of each.
        out: folder of the ledger.
        seeds: number of seeds, those of the recipes if None.
        workers: jobs at once on this machine.
        budget: minutes; studies that would take longer are left out.
        again: measure what was measured already.
        ray: address of a cluster to run on instead; empty to find or start one.
    """
    for name, value in (("workers", workers), ("budget", budget)):
        if value is not None and not value > 0:
            raise UserError(f"--{name} must be more than 0, not {value}.")
    ranges = [seeds_of(study, tier, seeds) for study in studies]
    ledger = prepare_folder(out)
    aside = set_aside(ledger)
    engine = local_engine(workers) if ray is None else _ray(ray)
    costs = Costs(runs_folder())
    jobs = plan(studies, tier, ranges, out.absolute())
    if again:
        _forget(jobs)
    if budget is not None:
        chosen = affordable(jobs, 60 * budget, engine.slots, costs)
        _say_left_out([name for name in jobs if name not in chosen], budget, not chosen)
        studies = [study for study in studies if study.claim.id in chosen]
        jobs = {name: jobs[name] for name in chosen}
    if ray is None:
        require_possible(to_do(jobs).values(), engine.slots)
    records: dict[str, Record] = {}
    try:
        with Display(jobs, engine.slots, costs) as display:
            if aside:
                display.console.print(aside, soft_wrap=True)
            for record in run_studies(studies, tier, out, seeds, engine, costs, display.tell):
                records[record.claim.id] = record
                display.verdict(record)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"Stopped; what was finished is in {out}, and the same command goes on."
        ) from None
    return [records[study.claim.id] for study in studies]


def _ray(address: str) -> Engine:
    from bayesattn.studies.on_ray import RayWorkers

    return RayWorkers(address or None)


def _forget(jobs: Mapping[str, Sequence[Job]]) -> None:
    for job in (job for own in jobs.values() for job in own):
        if isinstance(job, MeasurementJob):
            job.file.unlink(missing_ok=True)


def _say_left_out(names: Sequence[str], budget: float, everything: bool) -> None:
    if everything:
        raise UserError(f"Nothing can be measured in {budget:g} minutes: raise --budget.")
    if names:
        said = f"Left out, not fitting into {budget:g} minutes: {', '.join(names)}."
        print(said, file=sys.stderr)


def result_rows(records: Sequence[Record]) -> list[dict[str, str]]:
    """Reported beside measured, one row per claim."""
    return [
        {
            "claim": record.claim.id,
            "reported": record.claim.reported,
            "measured": words.measured(record),
            "verdict": words.verdict(record),
        }
        for record in records
    ]


def exit_code(records: Sequence[Record]) -> int:
    """0 whatever the verdicts, 1 if a study crashed."""
    return int(any(record.failure for record in records))
