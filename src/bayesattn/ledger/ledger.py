"""The ledger: one JSON file with one record per claim.

    {"schema": 1, "commit": …, "environment": {…}, "tier": "quick", "records": {"bam-size": {…}}}

`commit`, `environment` and `tier` are those of the latest run; each record repeats its own, since
measuring one claim again replaces its record only.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bayesattn.errors import UserError
from bayesattn.files import aside, write_json
from bayesattn.ledger.statement import Claim
from bayesattn.ledger.study import Tier, Verdict
from bayesattn.ledger.typed import Stored, from_plain

SCHEMA = 1
NAME = "ledger.json"


class FigureFile(Stored):
    """A figure on disk, beside the ledger."""

    file: str
    """Relative to the folder of the ledger."""
    caption: str
    alt: str


class ExhibitFile(Stored):
    """Data of one of the report's interactive parts on disk, beside the ledger."""

    kind: str
    title: str
    caption: str
    file: str
    """Relative to the folder of the ledger."""


class Failure(Stored):
    """How a measurement crashed."""

    sentence: str
    traceback: str


class Record(Stored):
    """Everything known about one claim after it was measured: a verdict, or a failure."""

    claim: Claim
    tier: Tier
    seeds: tuple[int, ...]
    recipe: Mapping[str, Any]
    verdict: Verdict | None
    failure: Failure | None
    numbers: Mapping[int, Any]
    """The result of every seed, as plain JSON."""
    figures: tuple[FigureFile, ...]
    command: str
    """Repeats the measurement."""
    seconds: float
    commit: str | None
    environment: Mapping[str, Any]
    exhibits: tuple[ExhibitFile, ...] = ()

    @property
    def result(self) -> str:
        """The outcome in one word; `error` if it crashed."""
        return self.verdict.outcome.value if self.verdict else "error"


@dataclass
class Ledger:
    """All records, by claim."""

    records: dict[str, Record] = field(default_factory=dict)

    @staticmethod
    def load(path: Path) -> "Ledger":
        """Read a ledger; raises `UserError` if there is none or it cannot be read."""
        if not path.exists():
            raise UserError(f"There is no ledger at {path}: run `bayesattn demo` to make one.")
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            schema = data["schema"]
            if schema == SCHEMA:
                return Ledger(from_plain(dict[str, Record], data["records"]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"The ledger {path} cannot be read ({error!r}).") from error
        raise UserError(f"The ledger {path} has schema {schema!r}; this version reads {SCHEMA}.")

    def save(self, path: Path) -> None:
        """Write the ledger so that a crash leaves either the old file or the new one."""
        latest = list(self.records.values())[-1] if self.records else None
        path.parent.mkdir(parents=True, exist_ok=True)
        data = {
            "schema": SCHEMA,
            "commit": latest.commit if latest else None,
            "environment": latest.environment if latest else {},
            "tier": latest.tier if latest else None,
            "records": {name: asdict(record) for name, record in self.records.items()},
        }
        write_json(path, data)


def set_aside(path: Path) -> str | None:
    """Move a ledger that cannot be read out of the way; the sentence to tell, or None."""
    if not path.exists():
        return None
    try:
        Ledger.load(path)
    except UserError as error:
        return f"{error} It was set aside as {aside(path).name} and a new one begun."
    return None


def add_record(path: Path, record: Record) -> Ledger:
    """Put one record into the ledger at `path`, replacing that claim's earlier one."""
    ledger = Ledger.load(path) if path.exists() else Ledger()
    ledger.records.pop(record.claim.id, None)
    ledger.records[record.claim.id] = record
    ledger.save(path)
    return ledger
