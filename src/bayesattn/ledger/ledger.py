"""The ledger: one JSON file with one record per claim, judged from the measured seeds beside it.

{"schema": 2, "records": {"bam-size": {"claim": {…}, "rows": {"prior": {…}, …}, …}}}
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bayesattn.errors import UserError
from bayesattn.files import aside, read_json, write_json
from bayesattn.ledger.statement import Claim, Statement
from bayesattn.ledger.study import Tier
from bayesattn.ledger.typed import Stored, from_plain
from bayesattn.stats import Interval
from bayesattn.verdicts import Outcome

SCHEMA = 2
NAME = "ledger.json"
FIRST_EDITION = 1
"""Schema of the first edition, which had other rules and recipes."""


class FirstEditionError(UserError):
    """The ledger belongs to the first edition."""


class FigureFile(Stored):
    """A figure on disk, beside the ledger."""

    file: str
    """Relative to the folder of the ledger."""
    sha256: str | None = None
    """Hash of the file; None in older records."""
    caption: str
    alt: str


class ExhibitFile(Stored):
    """Data of one of the report's interactive parts on disk, beside the ledger."""

    kind: str
    title: str
    caption: str
    file: str
    """Relative to the folder of the ledger."""
    sha256: str | None = None


class Failure(Stored):
    """A failed measurement."""

    sentence: str
    traceback: str


class Row(Stored):
    """The result of one statement."""

    registered: str
    """Hash of the statement that was judged."""
    outcome: Outcome | None
    """None in the quick tier, which gives no verdicts."""
    verdict: str | None
    """The outcome in the words of the statement's kind."""
    value: float | None
    """The deciding mean, geometric mean, proportion or largest error; None if no seed counts."""
    interval: Interval | None
    level: float | None
    """Level of the interval."""
    comparator: float | None
    seeds: tuple[int, ...]
    """Seeds that count."""
    left_out: tuple[int, ...]
    """Seeds that did not meet the premise."""
    p: float | None
    reason: str
    """Reason of the verdict, in one sentence."""
    needed: int | None = None
    """Estimated number of seeds that would decide, if undecided after the last look."""


class Record(Stored):
    """The record of one claim after its measurement: rows, or a failure."""

    claim: Claim
    tier: Tier
    seeds: tuple[int, ...]
    """Measured seeds; a row may use only the first of them."""
    recipe: Mapping[str, Any]
    rows: Mapping[str, Row]
    """Rows by the name of the statement."""
    failure: Failure | None
    figures: tuple[FigureFile, ...]
    exhibits: tuple[ExhibitFile, ...]
    command: str
    """The command that repeats the measurement."""
    seconds: float
    """Seconds of all seeds."""
    commits: tuple[str, ...]
    """Commits at which seeds were measured."""
    environment: Mapping[str, Any]
    """Environment of the judgement."""

    def judged(self) -> Iterator[tuple[Statement, Row]]:
        for own in self.claim.statements:
            if own.name in self.rows:
                yield own, self.rows[own.name]


@dataclass
class Ledger:
    """All records, by claim."""

    records: dict[str, Record] = field(default_factory=dict)

    @staticmethod
    def load(path: Path) -> "Ledger":
        """Read a ledger; raises `UserError` if there is none or it cannot be read."""
        require(path)
        try:
            data = read_json(path)
            schema = data["schema"]
            if schema == SCHEMA:
                if strange := data.keys() - {"schema", "records"}:
                    raise ValueError(f"no ledger has {min(strange)!r}")
                records = from_plain(dict[str, Record], data["records"])
                if wrong := [name for name, own in records.items() if own.claim.id != name]:
                    raise ValueError(f"its {wrong[0]} is of another claim")
                return Ledger(records)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"The ledger {path} is damaged ({error}).") from error
        if schema == FIRST_EDITION:
            raise FirstEditionError(
                f"The ledger {path} is of the first edition, whose rules gave other verdicts: "
                "`bayesattn claims run` sets it aside and begins a new one."
            )
        raise UserError(f"The ledger {path} has schema {schema!r}; this version reads {SCHEMA}.")

    def save(self, path: Path) -> None:
        """Write the ledger atomically."""
        path.parent.mkdir(parents=True, exist_ok=True)
        records = {name: asdict(record) for name, record in self.records.items()}
        write_json(path, {"schema": SCHEMA, "records": records}, checked=True)


def require(path: Path) -> None:
    if not path.exists():
        raise UserError(
            f"There is no ledger at {path}: `bayesattn claims run` writes one, and so does "
            "`bayesattn demo --all`."
        )


def set_aside(path: Path) -> str | None:
    """Rename an unreadable ledger; returns the sentence about it, or None."""
    if not path.exists():
        return None
    try:
        Ledger.load(path)
    except FirstEditionError:
        numbers = path.with_name("measured")
        moved = [aside(own).name for own in (path, numbers) if own.exists()]
        return (
            f"The ledger {path} is of the first edition, whose rules gave other verdicts: it was "
            f"set aside as {' and '.join(moved)}, and a new one begun."
        )
    except UserError as error:
        return f"{error} It was set aside as {aside(path).name} and a new one begun."
    return None


def add_record(path: Path, record: Record) -> Ledger:
    """Put one record into the ledger at `path`; it replaces the claim's earlier record."""
    ledger = Ledger.load(path) if path.exists() else Ledger()
    ledger.records.pop(record.claim.id, None)
    ledger.records[record.claim.id] = record
    ledger.save(path)
    return ledger
