"""`bayesattn study list | run | show`."""

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from tyro.conf import Positional, arg

from bayesattn.console import show_rows, write_json
from bayesattn.errors import UserError
from bayesattn.studies import words
from bayesattn.studies.ledger import NAME, Ledger, Record, set_aside
from bayesattn.studies.registry import AnyStudy, all_studies, find_study
from bayesattn.studies.runner import parse_tier, prepare_folder, run_studies, seeds_of
from bayesattn.studies.study import Tier, Training
from bayesattn.studies.workers import default_workers, train_all, unfinished

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
    tier: Annotated[str, arg(metavar="TIER")] = "quick"
    """How much to compute: quick, full or paper."""
    seeds: Annotated[int | None, arg(metavar="N")] = None
    """Number of seeds; the study's own if not given."""
    out: Path = Path("report")
    """Folder of ledger.json and figures."""
    workers: Annotated[int | None, arg(metavar="N")] = None
    """Models to train at once, one core each; as many as there are cores if not given."""
    json: JsonTarget = None
    """Write the records as JSON to this file ("-": standard output) instead of a table."""

    def run(self) -> int:
        """Run the studies."""
        if bool(self.names) == self.all:
            raise UserError("Name the studies to run, or pass --all; `bayesattn study list`.")
        tier = parse_tier(self.tier)
        studies = every_study(tier) if self.all else [find_study(name) for name in self.names]
        records = measure(studies, tier, self.out, self.seeds, self.workers)
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


def every_study(tier: Tier) -> list[AnyStudy]:
    """All studies that have this tier; says which have not."""
    studies = all_studies()
    if without := [study.claim.id for study in studies if tier not in study.recipes]:
        print(f"Left out, having no {tier} tier: {', '.join(without)}.", file=sys.stderr)
    return [study for study in studies if tier in study.recipes]


def measure(
    studies: Sequence[AnyStudy],
    tier: Tier,
    out: Path,
    seeds: int | None = None,
    workers: int | None = None,
) -> list[Record]:
    """Run studies into the ledger of `out`, with progress on standard error."""
    if workers is not None and workers < 1:
        raise UserError(f"--workers must be 1 or more, not {workers}.")
    ranges = [seeds_of(study, tier, seeds) for study in studies]
    totals = [len(own) for own in ranges]
    ledger = prepare_folder(out)
    console = Console(stderr=True, markup=False, highlight=False)
    if sentence := set_aside(ledger):
        console.print(sentence, soft_wrap=True)
    records: list[Record] = []
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        _train(unfinished(studies, tier, ranges), workers or default_workers(), progress)
        task = progress.add_task("measuring", total=sum(totals))
        finished = run_studies(studies, tier, out, seeds, lambda: progress.advance(task))
        for study in studies:
            progress.update(task, description=study.claim.id)
            record = next(finished)
            records.append(record)
            progress.update(task, completed=sum(totals[: len(records)]))
            console.print(f"{words.verdict(record):15}{study.claim.id} ({record.seconds:.1f} s)")
            if record.failure:
                console.print(record.failure.sentence, soft_wrap=True)
    return records


def _train(trainings: Sequence[Training], workers: int, progress: Progress) -> None:
    """Train what the studies need, unless one process can do it as well when they ask for it."""
    if len(trainings) < 2 or workers == 1:
        return
    task = progress.add_task(f"training {len(trainings)} models", total=len(trainings))

    def report(training: Training) -> None:
        progress.advance(task)
        left = len(trainings) - int(progress.tasks[task].completed)
        progress.update(task, description=f"training, {left} models left")

    train_all(trainings, workers, report)
    progress.remove_task(task)


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
