"""`bayesattn claims list | run | add | show`.

What measures is imported when something is measured: a list or a mistake is answered at once.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from tyro.conf import Positional, arg

from bayesattn.claims.registry import all_studies, find_study, listed, require_claim
from bayesattn.commands.options import Answer, JsonTarget, optional
from bayesattn.console import mistakes
from bayesattn.errors import UserError
from bayesattn.files import only_one
from bayesattn.ledger import words
from bayesattn.ledger.ledger import NAME, Ledger, Record, add_record, set_aside
from bayesattn.ledger.study import AnyStudy, Tier

if TYPE_CHECKING:
    from bayesattn.ledger.jobs import Job
    from bayesattn.report.table import Cell

Claims = Annotated[tuple[str, ...], arg(metavar="[CLAIM ...]")]
Seeds = Annotated[
    str | None,
    optional("N|A-B", "Measure so many seeds, or these; as many as it takes if not given."),
]
Workers = Annotated[
    int | None,
    optional("N", "Jobs at once, one core each; as many as there are cores if not given."),
]
Out = Annotated[
    Path, arg(metavar="FOLDER", help="Folder of ledger.json, measured/, figures/ and index.html.")
]
QUIET = 30.0
"""Seconds between two lines where lines cannot be overwritten."""


@dataclass(frozen=True, kw_only=True)
class List:
    """List the claims that can be measured."""

    json: JsonTarget = None

    def run(self) -> int:
        claims = listed()
        rows = [
            {
                "claim": claim.id,
                "tiers": ", ".join(tiers),
                "title": claim.title,
                "statements": ", ".join(own.name for own in claim.statements) or "none yet",
            }
            for claim, tiers in claims
        ]
        data = [{**asdict(claim), "tiers": tiers} for claim, tiers in claims]
        return Answer(data, [rows]).give(self.json)


@dataclass(frozen=True, kw_only=True)
class Run:
    """Measure claims and write them into a ledger; a crash gives exit code 1, any verdict 0.

    In the full tier seeds are added up to the next look until every statement is decided, or its
    last look is taken. The quick tier gives no verdicts: it says which way the numbers point, and
    whether that agrees with what is recorded.
    """

    names: Positional[Claims] = ()
    """Claims to measure; `bayesattn claims list` shows them."""
    all: bool = False
    """Measure every claim."""
    skip: Claims = ()
    """With --all: every claim but these."""
    tier: Annotated[str, arg(metavar="quick|full|paper")] = "quick"
    """How much to compute."""
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
        from bayesattn.checks import shortened
        from bayesattn.ledger.runner import MOST_SEEDS, parse_seeds, parse_tier

        if self.workers is not None and not 1 <= self.workers <= MOST_SEEDS:
            raise UserError(
                f"--workers must be 1 to {MOST_SEEDS:,}, not {shortened(self.workers)}."
            )
        tier = parse_tier(self.tier)
        seeds = None if self.seeds is None else parse_seeds(self.seeds)
        studies, note = choose(tier, self.names, self.skip), ""
        if self.all and (without := sorted(_names(all_studies()) - _names(studies, self.skip))):
            names = ", ".join(without)
            note = f"Left out, having no {tier} tier or no statements: {names}."
        return answer(self._measure(studies, tier, seeds, note), self.out).give(self.json)

    def _measure(
        self, studies: Sequence[AnyStudy], tier: Tier, seeds: int | range | None, note: str
    ) -> list[Record]:
        from bayesattn.ledger.engines import RayWorkers, local_engine
        from bayesattn.ledger.runner import run_claims

        engine = local_engine(self.workers) if self.on == "here" else RayWorkers(self.address)
        settings = {"engine": engine, "again": self.again}
        records: dict[str, Record] = {}
        try:
            with Display(note) as display:
                for record in run_claims(
                    studies, tier, self.out, seeds, tell=display.tell, **settings
                ):
                    records[record.claim.id] = record
                    display.verdicts(record, further=seeds is None)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"Stopped; what was finished is in {self.out}, and the same command goes on."
            ) from None
        return [records[study.claim.id] for study in studies]


@dataclass(frozen=True, kw_only=True)
class Add:
    """Add seeds that were measured elsewhere to a ledger, and judge again."""

    folder: Annotated[Positional[Path], arg(metavar="FOLDER")]
    """Folder that `bayesattn claims run` wrote on another machine, or its `measured`."""
    out: Out = Path("report")
    json: JsonTarget = None

    def run(self) -> int:
        from bayesattn.ledger.merging import measured_files
        from bayesattn.ledger.runner import prepare_folder

        with mistakes():
            measured_files(self.folder)  # refuses a folder without any, before there is another
            with only_one(prepare_folder(self.out).parent, "measuring claims"):
                return self._add().give(self.json)

    def _add(self) -> Answer:
        from bayesattn.ledger.judging import judge_seeds
        from bayesattn.ledger.merging import add_seeds

        added = add_seeds(self.folder, self.out, find_study)
        if sentence := set_aside(self.out / NAME):
            print(sentence, file=sys.stderr)
        print(f"{len(added.new)} added, {len(added.known)} there before.", file=sys.stderr)
        changed = dict.fromkeys((own.claim, own.tier) for own in (*added.new, *added.known))
        records = [judge_seeds(find_study(name), tier, self.out) for name, tier in changed]
        for record in records:
            add_record(self.out / NAME, record)
        return answer(records, self.out)


@dataclass(frozen=True, kw_only=True)
class Show:
    """Show one claim, how it is measured, and its verdict if it was measured already."""

    name: Annotated[Positional[str], arg(metavar="CLAIM")]
    """Its name; `bayesattn claims list` shows them."""
    out: Path = Path("report")
    """Folder of the ledger to look in; the recorded one if there is none."""
    json: JsonTarget = None

    def run(self) -> int:
        from bayesattn.claims.recorded import recorded_ledger
        from bayesattn.report.table import make_table

        require_claim(self.name)
        (claim,) = (own for own, _ in listed() if own.id == self.name)
        path = self.out / NAME
        ledger = Ledger.load(path) if path.exists() else recorded_ledger()
        record = ledger.records.get(self.name)
        lines = {"claim": claim.id, "title": claim.title, "source": claim.source}
        lines |= {"method": claim.method, "mind": claim.mind}
        if record and record.failure:
            lines["error"] = f"{record.failure.sentence}\n{record.failure.traceback}"
        lines["command"] = words.command(claim.id)
        rows = [f"{name:10}{text}" for name, text in lines.items()]
        for cell in make_table([claim], ledger).cells:
            rows += ["", *(f"{name:10}{text}" for name, text in _told(cell).items())]
        data = {**asdict(claim), "record": asdict(record) if record else None}
        return Answer(data, rows).give(self.json)


def _told(cell: "Cell") -> dict[str, str]:
    own, row = cell.own, cell.row
    told = {"statement": f"{own.name} ({own.kind}): {own.text}", "source": own.source}
    told |= {"reported": own.reported, "measures": own.estimand, "on": own.scale}
    told |= {"rule": words.limit(own), "against": own.comparator, "premise": own.premise}
    told |= {"verdict": cell.verdict, "found": "; ".join(cell.facts)}
    return {name: text for name, text in {**told, "why": row.reason if row else ""}.items() if text}


def answer(records: Sequence[Record], folder: Path) -> Answer:
    """Every statement of these records in a row; the page is written, too."""
    from bayesattn.report.page import PAGE, write_page
    from bayesattn.report.table import make_table

    page = write_page(folder, folder / PAGE)
    ledger = Ledger.load(folder / NAME)
    table = make_table([record.claim for record in records], ledger)
    rows = [
        {
            "statement": cell.id,
            "verdict": cell.verdict,
            "measured": words.measured(cell.own, cell.row) if cell.row else "–",
            "": "; ".join(cell.facts[1:]),
        }
        for cell in table.cells
    ]
    data = [asdict(record) for record in records]
    crashed = any(record.failure for record in records)
    return Answer(data, [rows, f"\nReport: {page}"], int(crashed))


def choose(tier: Tier, only: Sequence[str] = (), skip: Sequence[str] = ()) -> list[AnyStudy]:
    """The claims named in `only`, or all that have this tier, without those in `skip`."""
    unwanted = {find_study(name).claim.id for name in skip}
    if only:
        studies = [find_study(name) for name in dict.fromkeys(only)]
    else:
        studies = [own for own in all_studies() if tier in own.recipes and own.claim.statements]
    chosen = [study for study in studies if study.claim.id not in unwanted]
    if not chosen:
        raise UserError("No claim is left to measure: skip fewer.")
    return chosen


def _names(studies: Sequence[AnyStudy], more: Sequence[str] = ()) -> set[str]:
    return {study.claim.id for study in studies} | set(more)


class Display:
    """One bar over all jobs, and each verdict; in a log, a line now and then.

    The note is said once work begins: what is refused before gets its one sentence alone.
    """

    def __init__(self, note: str = "") -> None:
        self._note = note
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

    def tell(self, left: "Mapping[str, Job]") -> None:
        from bayesattn.ledger.jobs import TrainingJob

        if self._note:
            self.console.print(self._note, soft_wrap=True)
            self._note = ""
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

    def verdicts(self, record: Record, further: bool) -> None:
        """What a look found, and whether seeds are added."""
        name = record.claim.id
        for own, row in record.judged():
            said = f"{words.verdict(row):22}{name}/{own.name}: {words.measured(own, row)}"
            self.console.print(f"{said} ({words.seeds(row)})", soft_wrap=True)
        if record.failure:
            self.console.print(f"{words.ERROR:22}{name}: {record.failure.sentence}", soft_wrap=True)
            return
        from bayesattn.ledger.judging import look_after

        if further and (look := look_after(record)):
            self.console.print(f"{name}: going on to {look} seeds", soft_wrap=True)
