"""Findings of one model of any kind, each beside its nulls.

If a probe has no meaning for a model, or fails, `skipped` has the reason, and the others go on.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bayesattn.probes.measured import Measured, plain
from bayesattn.probes.selfcheck import SelfCheck

SCHEMA = 2
OUT_OF_MEMORY = ("can't allocate memory", "out of memory", "not enough memory")
NO_MEMORY = (
    "the memory of this machine was not enough: free some, take fewer or shorter prompts, "
    "or --dtype bfloat16"
)
FOR_PEOPLE = {"random init": "fresh weights"}
Row = dict[str, str]


class MeasuredRow(dict[str, str]):
    """A row of a table with its numbers, so a page can draw them."""

    measured: Measured


@dataclass(frozen=True)
class Finding:
    """One measurement and its place."""

    probe: str
    where: str
    what: str
    measured: Measured
    layer: int | None = None
    """Number of the layer; None for all layers together."""
    reported: str | None = None
    """The authors' number for other models; shown, never compared with."""
    doubt: str | None = None
    """Reason why the self-check is weak for this number."""

    @property
    def times_noise(self) -> float | None:
        """The measured value divided by that of noise of the same size."""
        noise = self.measured.nulls.get("noise")
        return self.measured.value / noise if noise else None

    def to_dict(self) -> dict[str, Any]:
        measured = plain(self.measured)
        return {
            "probe": self.probe,
            "where": self.where,
            "layer": self.layer,
            "what": self.what,
            "measured": measured["value"],
            "interval": measured["interval"],
            "null": measured["nulls"],
            "times noise": self.times_noise,
            "p": measured["p"],
            "reported": self.reported,
            "doubt": self.doubt,
        }

    def row(self) -> MeasuredRow:
        row = measured_row(self.probe, self.where, self.what, self.measured)
        row["× noise"] = "" if self.times_noise is None else number(self.times_noise)
        row["self-check"] = "in doubt" if self.doubt else ""
        return row


@dataclass(frozen=True, kw_only=True)
class Criterion:
    """One line of a summary: a rule, and whether it holds."""

    name: str
    rule: str
    holds: bool
    found: str
    control_holds: bool | None = None
    """Whether fresh weights pass, too; None if not measured, or if the rule includes them."""


@dataclass(frozen=True, kw_only=True)
class Examination:
    """The findings of one model; each kind of model adds its own results."""

    name: str
    about: dict[str, Any]
    check: SelfCheck
    skipped: dict[str, str] = field(default_factory=dict[str, str])
    """Reasons of skipped measurements, by name."""
    notes: list[str] = field(default_factory=list[str])
    """Remarks for the reader of the numbers."""

    @property
    def title(self) -> str:
        raise NotImplementedError

    @property
    def subtitle(self) -> str:
        raise NotImplementedError

    @property
    def findings(self) -> list[Finding]:
        raise NotImplementedError

    @property
    def criteria(self) -> dict[str, list[Criterion]]:
        return {}

    def results(self) -> dict[str, Any]:
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "about": self.about,
            "check": self.check.to_dict(),
            "measurements": [finding.to_dict() for finding in self.findings],
            "criteria": {
                heading: [asdict(line) for line in lines]
                for heading, lines in self.criteria.items()
            },
            **self.results(),
            "skipped": self.skipped,
            "notes": self.notes,
        }


def to_json(found: Sequence[Examination]) -> dict[str, Any]:
    return {"schema": SCHEMA, "models": [one.to_dict() for one in found]}


def table(findings: Sequence[Finding], *, reported: bool = False) -> list[Row]:
    """A row for each finding, without columns that are empty in all rows.

    `reported` adds the authors' numbers for other models, for wide pages.
    """
    rows = [one.row() for one in findings]
    for row, one in zip(rows, findings, strict=True):
        row["reported"] = (reported and one.reported) or ""
    empty = {name for row in rows for name in row} - {
        name for row in rows for name, cell in row.items() if cell
    }
    for row in rows:
        for name in empty:
            row.pop(name, None)
    return [*rows]


def measured_row(probe: str, where: str, what: str, measured: Measured) -> MeasuredRow:
    interval = measured.interval
    row = MeasuredRow(
        {
            "probe": probe,
            "where": where,
            "what": what,
            "measured": number(measured.value),
            "95%": f"{number(interval.low)} … {number(interval.high)}" if interval else "",
            "nulls": ", ".join(f"{said(name)} {number(x)}" for name, x in measured.nulls.items()),
            "p": "" if measured.p is None else f"{measured.p:.2g}",
        }
    )
    row.measured = measured
    return row


def said(null: str) -> str:
    """Readable name of a null; JSON has its short name."""
    return FOR_PEOPLE.get(null, null)


def number(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def lacks_memory(error: BaseException) -> bool:
    """Whether Python, torch on a CPU or torch on a GPU ran out of memory."""
    said = str(error)
    return isinstance(error, MemoryError) or any(word in said for word in OUT_OF_MEMORY)


def attempt(skipped: dict[str, str], name: str, work: Callable[[], Any]) -> Any:
    """The result of `work`; None if it fails, with the reason in `skipped`.

    A failed measurement of an unknown model must not stop the others.
    """
    try:
        return work()
    except ValueError as reason:  # a sentence of ours
        skipped[name] = str(reason)
    except Exception as error:
        if lacks_memory(error):
            skipped[name] = NO_MEMORY
            return None
        skipped[name] = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return None
