"""`bayesattn claims list | run | show`, and `bayesattn demo`."""

import os
import sys
import time
import webbrowser
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from tyro.conf import Positional, arg

from bayesattn.claims.registry import all_studies, find_study
from bayesattn.commands.options import Answer, JsonTarget, optional
from bayesattn.errors import UserError
from bayesattn.ledger import words
from bayesattn.ledger.engines import RayWorkers, local_engine
from bayesattn.ledger.jobs import Job, TrainingJob
from bayesattn.ledger.ledger import NAME, Ledger, Record
from bayesattn.ledger.runner import parse_tier, run_claims
from bayesattn.ledger.study import AnyStudy, Tier
from bayesattn.report.page import PAGE, write_page

Claims = Annotated[tuple[str, ...], arg(metavar="[CLAIM ...]")]
Seeds = Annotated[int | None, optional("N", "Number of seeds; each claim's own if not given.")]
Workers = Annotated[
    int | None,
    optional("N", "Jobs at once, one core each; as many as there are cores if not given."),
]
Out = Annotated[
    Path, arg(metavar="FOLDER", help="Folder of ledger.json, figures, numbers and index.html.")
]
QUIET = 30.0
"""Seconds between two lines where lines cannot be overwritten."""


@dataclass(frozen=True, kw_only=True)
class List:
    """List the claims that can be measured."""

    json: JsonTarget = None

    def run(self) -> int:
        studies = all_studies()
        rows = [
            {
                "claim": study.claim.id,
                "statement": study.claim.statement,
                "reported": study.claim.reported,
                "tiers": ", ".join(study.recipes),
            }
            for study in studies
        ]
        data = [{**asdict(study.claim), "tiers": list(study.recipes)} for study in studies]
        return Answer(data, [rows]).give(self.json)


@dataclass(frozen=True, kw_only=True)
class Run:
    """Measure claims and write them into a ledger; a crash gives exit code 1, a refutation 0."""

    names: Positional[Claims] = ()
    """Claims to measure; `bayesattn claims list` shows them."""
    all: bool = False
    """Measure every claim."""
    skip: Claims = ()
    """With --all: every claim but these."""
    tier: Annotated[str, arg(metavar="TIER")] = "quick"
    """How much to compute: quick, full or paper."""
    seeds: Seeds = None
    again: bool = False
    """Measure again what was measured already; models are not trained again."""
    out: Out = Path("report")
    workers: Workers = None
    on: Annotated[Literal["here", "ray"], arg(metavar="here|ray")] = "here"
    """Who does the work: this machine, or a Ray cluster."""
    address: Annotated[str | None, optional("HOST:PORT")] = None
    """Address of the cluster; without it Ray finds one, or starts one on this machine."""
    json: JsonTarget = None

    def run(self) -> int:
        if bool(self.names) == self.all:
            raise UserError(
                "Name the claims to measure, or pass --all; `bayesattn claims list` shows them."
            )
        if self.address and self.on != "ray":
            raise UserError("--address is that of a Ray cluster: pass --on ray with it.")
        if self.workers is not None and self.workers < 1:
            raise UserError(f"--workers must be 1 or more, not {self.workers}.")
        tier = parse_tier(self.tier)
        records = self._measure(choose(tier, self.names, self.skip), tier)
        page = write_page(self.out, self.out / PAGE)
        rows = [
            {
                "claim": record.claim.id,
                "reported": record.claim.reported,
                "measured": words.measured(record),
                "verdict": words.verdict(record),
            }
            for record in records
        ]
        crashed = any(record.failure for record in records)
        data = [asdict(record) for record in records]
        return Answer(data, [rows, f"\nReport: {page}"], int(crashed)).give(self.json)

    def _measure(self, studies: Sequence[AnyStudy], tier: Tier) -> list[Record]:
        engine = local_engine(self.workers) if self.on == "here" else RayWorkers(self.address)
        settings = {"engine": engine, "again": self.again}
        records: dict[str, Record] = {}
        try:
            with Display() as display:
                for record in run_claims(
                    studies, tier, self.out, self.seeds, tell=display.tell, **settings
                ):
                    records[record.claim.id] = record
                    display.verdict(record)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"Stopped; what was finished is in {self.out}, and the same command goes on."
            ) from None
        return [records[study.claim.id] for study in studies]


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Measure every claim in its quick tier and show what holds on one page."""

    only: Claims = ()
    """Measure only these claims."""
    skip: Claims = ()
    """Measure all but these claims."""
    seeds: Seeds = None
    workers: Workers = None
    out: Out = Path("report")
    no_open: bool = False
    """Do not open the page in a browser, as is done when a person is watching."""
    json: JsonTarget = None

    def run(self) -> int:
        code = Run(
            names=self.only,
            all=not self.only,
            skip=self.skip,
            seeds=self.seeds,
            workers=self.workers,
            out=self.out,
            json=self.json,
        ).run()
        if someone_is_watching() and not self.no_open:
            webbrowser.open((self.out / PAGE).resolve().as_uri())
        return code


@dataclass(frozen=True, kw_only=True)
class Show:
    """Show one claim, how it is measured, and its verdict if it was measured already."""

    name: Annotated[Positional[str], arg(metavar="CLAIM")]
    """Its name; `bayesattn claims list` shows them."""
    out: Path = Path("report")
    """Folder of the ledger to look in."""
    json: JsonTarget = None

    def run(self) -> int:
        study = find_study(self.name)
        path = self.out / NAME
        record = Ledger.load(path).records.get(self.name) if path.exists() else None
        about = {**asdict(study.claim), "method": study.method, "null": study.null}
        lines = {
            "claim": study.claim.id,
            "statement": study.claim.statement,
            "source": study.claim.source,
            "reported": study.claim.reported,
            "method": study.method,
            "null": study.null,
            "tiers": ", ".join(f"{t} (seeds: {r.seeds})" for t, r in study.recipes.items()),
            **_found(study, record),
        }
        data = {**about, "record": asdict(record) if record else None}
        return Answer(data, [f"{name:10}{text}" for name, text in lines.items()]).give(self.json)


def _found(study: AnyStudy, record: Record | None) -> dict[str, str]:
    if record is None:
        return {"verdict": f"not measured yet: bayesattn claims run {study.claim.id}"}
    found = {"measured": words.measured(record), "verdict": words.verdict(record)}
    if record.verdict:
        found["reason"] = record.verdict.reason
    elif record.failure:
        found["error"] = f"{record.failure.sentence}\n{record.failure.traceback}"
    return {**found, "again": record.command}


def choose(tier: Tier, only: Sequence[str] = (), skip: Sequence[str] = ()) -> list[AnyStudy]:
    """The claims named in `only`, or all that have this tier, without those in `skip`."""
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
        raise UserError("No claim is left to measure: skip fewer.")
    return chosen


class Display:
    """One bar over all jobs, and each verdict; in a log, a line now and then."""

    def __init__(self) -> None:
        self.console = Console(stderr=True, markup=False, highlight=False)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self.console,
            transient=True,
        )
        self._bar = self._progress.add_task("", total=None)
        self._total = 0
        self._began = self._spoken = time.monotonic()

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:  # elsewhere stopping prints an empty line
            self._progress.stop()

    def tell(self, left: Mapping[str, Job]) -> None:
        """Show which jobs are left."""
        self._total = max(self._total, len(left))
        models = sum(isinstance(job, TrainingJob) for job in left.values())
        said = f"{models} models to train, {len(left) - models} measurements to make"
        done, now = self._total - len(left), time.monotonic()
        self._progress.update(self._bar, description=said, completed=done, total=self._total)
        if not self.console.is_terminal and self._total and now - self._spoken > QUIET:
            self._spoken = now
            minutes = (now - self._began) / 60
            line = f"{done}/{self._total} done after {minutes:.0f} min: {said}"
            self.console.print(line, soft_wrap=True)

    def verdict(self, record: Record) -> None:
        said = f"{words.verdict(record):15}{record.claim.id} ({record.seconds:.1f} s)"
        self.console.print(said, soft_wrap=True)
        if record.failure:
            self.console.print(record.failure.sentence, soft_wrap=True)


def someone_is_watching() -> bool:
    """Whether opening a browser would show the page to a person."""
    screen = (
        sys.platform != "linux" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
    return bool(sys.stdout.isatty() and screen and not os.environ.get("CI"))
