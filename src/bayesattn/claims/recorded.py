"""What was recorded of every statement: what the quick tier is compared with.

python -m bayesattn.claims.recorded results      writes recorded.json from that ledger
"""

import json
import sys
from functools import cache
from pathlib import Path

from bayesattn.claims.registry import listed
from bayesattn.files import write_json
from bayesattn.ledger.ledger import NAME, Ledger, Record, Row
from bayesattn.ledger.statement import Statement
from bayesattn.ledger.study import Tier
from bayesattn.ledger.typed import from_plain, to_plain
from bayesattn.ledger.words import command
from bayesattn.verdicts import holm

FILE = Path(__file__).with_name("recorded.json")


@cache
def recorded() -> dict[str, Row]:
    """The recorded row of each statement, by its full name."""
    return from_plain(dict[str, Row], json.loads(FILE.read_text(encoding="utf-8")))


def recorded_ledger() -> Ledger:
    """What is recorded as a ledger, without figures: those lie beside results/ledger.json."""
    found: dict[str, dict[str, Row]] = {}
    for name, row in recorded().items():
        claim, _, own = name.partition("/")
        found.setdefault(claim, {})[own] = row
    known = {claim.id: claim for claim, _ in listed()}
    records = {
        name: Record(
            claim=known[name],
            tier=Tier.FULL,
            seeds=tuple(sorted({seed for row in rows.values() for seed in row.seeds})),
            recipe={},
            rows=rows,
            failure=None,
            figures=(),
            exhibits=(),
            command=command(name),
            seconds=0.0,
            commits=(),
            environment={},
        )
        for name, rows in found.items()
        if name in known
    }
    return Ledger(records)


def recorded_row(claim: str, own: Statement) -> Row | None:
    """The recorded row of a statement, if it was judged as it is registered now."""
    row = recorded().get(f"{claim}/{own.name}")
    return row if row and row.registered == own.hash else None


def agrees(own: Statement, row: Row, other: Row) -> bool:
    """Whether two values lie on the same side of the limit."""
    if row.value is None or other.value is None:
        return False
    return own.says_yes(row.value) == own.says_yes(other.value)


def standing(ledger: Ledger) -> set[str]:
    """Full names of the verdicts that stand together by Holm's correction.

    The family is every empirical statement that is registered, measured or not.
    """
    registered = {
        f"{claim.id}/{own.name}"
        for claim, _ in listed()
        for own in claim.statements
        if own.empirical
    }
    rows = {
        f"{name}/{own.name}": row.p
        for name, record in ledger.records.items()
        for own, row in record.judged()
        if own.empirical
    }
    firm = holm([*rows.values()], m=len(registered | set(rows)))
    return {name for name, stands in zip(rows, firm, strict=True) if stands}


def write(folder: Path) -> None:
    """Make the ledger in `folder` what the quick tier is compared with."""
    records = sorted(Ledger.load(folder / NAME).records.items())
    rows = {f"{name}/{own.name}": row for name, record in records for own, row in record.judged()}
    write_json(FILE, to_plain(rows))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
