"""The ledger: one JSON file with one record per claim.

    {"schema": 1, "commit": …, "environment": {…}, "tier": "quick", "records": {"bam-size": {…}}}

`commit`, `environment` and `tier` are those of the latest run; each record repeats its own, since
measuring one claim again replaces its record only.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bayesattn.errors import UserError
from bayesattn.ledger.study import Claim, Tier, Verdict
from bayesattn.stats import Interval, Outcome

SCHEMA = 1
NAME = "ledger.json"


@dataclass(frozen=True, kw_only=True)
class FigureFile:
    """A figure on disk, beside the ledger."""

    file: str
    """Relative to the folder of the ledger."""
    caption: str
    alt: str


@dataclass(frozen=True, kw_only=True)
class ExhibitFile:
    """Data of one of the report's interactive parts on disk, beside the ledger."""

    kind: str
    title: str
    caption: str
    file: str
    """Relative to the folder of the ledger."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """How a measurement crashed."""

    sentence: str
    traceback: str


@dataclass(frozen=True, kw_only=True)
class Record:
    """Everything known about one claim after it was measured: a verdict, or a failure."""

    claim: Claim
    method: str
    null: str
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
                return Ledger({name: _record(entry) for name, entry in data["records"].items()})
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"The ledger {path} cannot be read ({error!r}).") from error
        raise UserError(f"The ledger {path} has schema {schema!r}; this version reads {SCHEMA}.")

    def save(self, path: Path) -> None:
        """Write the ledger so that a crash leaves either the old file or the new one."""
        latest = list(self.records.values())[-1] if self.records else None
        data = {
            "schema": SCHEMA,
            "commit": latest.commit if latest else None,
            "environment": latest.environment if latest else {},
            "tier": latest.tier if latest else None,
            "records": {name: asdict(record) for name, record in self.records.items()},
        }
        text = json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        with draft.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)


def set_aside(path: Path) -> str | None:
    """Move a ledger that cannot be read out of the way; the sentence to tell, None if it is fine.

    Nothing is destroyed: it stays beside the new one under a name of its own.
    """
    if not path.exists():
        return None
    try:
        Ledger.load(path)
    except UserError as error:
        number = 1
        while (kept := path.with_name(f"{path.stem}.aside-{number}{path.suffix}")).exists():
            number += 1
        path.rename(kept)
        return f"{error} It was set aside as {kept.name} and a new one begun."
    return None


def add_record(path: Path, record: Record) -> Ledger:
    """Put one record into the ledger at `path`, replacing that claim's earlier one."""
    ledger = Ledger.load(path) if path.exists() else Ledger()
    ledger.records.pop(record.claim.id, None)
    ledger.records[record.claim.id] = record
    ledger.save(path)
    return ledger


def _record(data: dict[str, Any]) -> Record:
    verdict, failure = data["verdict"], data["failure"]
    fields = {
        "claim": Claim(**data["claim"]),
        "tier": Tier(data["tier"]),
        "seeds": tuple(data["seeds"]),
        "verdict": _verdict(verdict) if verdict else None,
        "failure": Failure(**failure) if failure else None,
        "numbers": {int(seed): numbers for seed, numbers in data["numbers"].items()},
        "figures": tuple(FigureFile(**figure) for figure in data["figures"]),
        "exhibits": tuple(ExhibitFile(**exhibit) for exhibit in data.get("exhibits", ())),
    }
    return Record(**{**data, **fields})


def _verdict(data: dict[str, Any]) -> Verdict:
    interval = data["interval"]
    fields = {
        "outcome": Outcome(data["outcome"]),
        "interval": Interval(*interval) if interval else None,
        "seeds": tuple(data["seeds"]),
        "tier": Tier(data["tier"]),
    }
    return Verdict(**{**data, **fields})
