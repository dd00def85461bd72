"""`bayesattn claims list | run | show`."""

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

from rich.console import Console
from tyro.conf import Positional, arg

from bayesattn.claims.registry import all_studies, find_study
from bayesattn.commands.claims_progress import Display
from bayesattn.commands.options import JsonTarget
from bayesattn.console import show_rows, write_json
from bayesattn.errors import UserError
from bayesattn.ledger import words
from bayesattn.ledger.engines import RayWorkers, local_engine
from bayesattn.ledger.ledger import NAME, Ledger, Record
from bayesattn.ledger.runner import parse_tier, run_claims
from bayesattn.ledger.study import AnyStudy, Tier
from bayesattn.report.page import PAGE, write_page


@dataclass(frozen=True, kw_only=True)
class List:
    """List the claims that can be measured."""

    json: JsonTarget = None
    """Write JSON to this file ("-": standard output) instead of a table."""

    def run(self) -> int:
        """Print the claims."""
        studies = all_studies()
        if self.json:
            rows = [{**asdict(s.claim), "tiers": [*map(str, s.recipes)]} for s in studies]
            write_json(rows, self.json)
        else:
            show_rows(
                [
                    {
                        "claim": study.claim.id,
                        "statement": study.claim.statement,
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

    names: Annotated[Positional[tuple[str, ...]], arg(metavar="[CLAIM ...]")] = ()
    """Claims to measure; `bayesattn claims list` shows them."""
    all: bool = False
    """Measure every claim."""
    skip: Annotated[tuple[str, ...], arg(metavar="[CLAIM ...]")] = ()
    """With --all: every claim but these."""
    tier: Annotated[str, arg(metavar="TIER")] = "quick"
    """How much to compute: quick, full or paper."""
    seeds: Annotated[int | None, arg(metavar="N")] = None
    """Number of seeds; the claim's own if not given."""
    again: bool = False
    """Measure again what was measured already; models are not trained again."""
    out: Path = Path("report")
    """Folder of ledger.json, figures, measured numbers and the page index.html."""
    workers: Annotated[int | None, arg(metavar="N")] = None
    """Jobs at once, one core each; as many as there are cores if not given."""
    on: Annotated[Literal["here", "ray"], arg(metavar="here|ray")] = "here"
    """Who does the work: this machine, or a Ray cluster."""
    address: Annotated[str | None, arg(metavar="HOST:PORT")] = None
    """Of the cluster; without it Ray finds one, or starts one on this machine."""
    json: JsonTarget = None
    """Write the records as JSON to this file ("-": standard output) instead of a table."""

    def run(self) -> int:
        """Measure the claims."""
        if bool(self.names) == self.all:
            raise UserError(
                "Name the claims to measure, or pass --all; `bayesattn claims list` shows them."
            )
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
            again=self.again,
            ray=(self.address or "") if self.on == "ray" else None,
        )
        page = write_page(self.out, self.out / PAGE)
        if self.json:
            write_json([asdict(record) for record in records], self.json)
        else:
            show_results(records, page)
        return exit_code(records)


@dataclass(frozen=True, kw_only=True)
class Show:
    """Show one claim, how it is measured, and its verdict if it was measured already."""

    name: Annotated[Positional[str], arg(metavar="CLAIM")]
    """Its name; `bayesattn claims list` shows them."""
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
            "claim": study.claim.id,
            "statement": study.claim.statement,
            "source": study.claim.source,
            "reported": study.claim.reported,
            "method": study.method,
            "null": study.null,
            "tiers": ", ".join(f"{t} (seeds: {r.seeds})" for t, r in study.recipes.items()),
            **_found(study, record),
        }
        console = Console(markup=False, highlight=False)
        for name, text in lines.items():
            console.print(f"{name:10}{text}", soft_wrap=not console.is_terminal)
        return 0


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
        raise UserError("No claim is left to measure: skip fewer.")
    return chosen


def measure(
    studies: Sequence[AnyStudy],
    tier: Tier,
    out: Path,
    seeds: int | None = None,
    *,
    workers: int | None = None,
    again: bool = False,
    ray: str | None = None,
) -> list[Record]:
    """Measure claims into the ledger of `out`, with progress on standard error.

    Args:
        studies: what to run.
        tier: how much of each.
        out: folder of the ledger.
        seeds: number of seeds, those of the recipes if None.
        workers: jobs at once on this machine.
        again: measure what was measured already.
        ray: address of a cluster to run on instead; empty to find or start one.
    """
    if workers is not None and workers < 1:
        raise UserError(f"--workers must be 1 or more, not {workers}.")
    engine = local_engine(workers) if ray is None else RayWorkers(ray or None)
    records: dict[str, Record] = {}
    try:
        with Display() as display:
            for record in run_claims(
                studies, tier, out, seeds, engine=engine, again=again, tell=display.tell
            ):
                records[record.claim.id] = record
                display.verdict(record)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"Stopped; what was finished is in {out}, and the same command goes on."
        ) from None
    return [records[study.claim.id] for study in studies]


def show_results(records: Sequence[Record], page: Path) -> None:
    """Reported beside measured, one row per claim, and where the page is."""
    show_rows(
        [
            {
                "claim": record.claim.id,
                "reported": record.claim.reported,
                "measured": words.measured(record),
                "verdict": words.verdict(record),
            }
            for record in records
        ]
    )
    print(f"\nReport: {page}")


def exit_code(records: Sequence[Record]) -> int:
    """0 whatever the verdicts, 1 if a measurement crashed."""
    return int(any(record.failure for record in records))
