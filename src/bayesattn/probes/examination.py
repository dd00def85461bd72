"""What a look into one model gives, whatever the model is: findings, each beside its nulls.

A probe that means nothing for a model, or fails, says why in `skipped`, and the others go on.
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
    """A row of a table that knows its numbers, so that a page can draw them."""

    measured: Measured


@dataclass(frozen=True)
class Finding:
    """One measurement and its place."""

    probe: str
    where: str
    what: str
    measured: Measured
    layer: int | None = None
    """None for what is of all layers."""
    reported: str | None = None
    """What the authors write of other models; shown, never compared with."""
    doubt: str | None = None
    """Why the self-check says little about it."""

    @property
    def times_noise(self) -> float | None:
        """Measured over what noise of the same size gives."""
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
    """Whether fresh weights pass as well; None if they were not measured, or are in the rule."""


@dataclass(frozen=True, kw_only=True)
class Examination:
    """What was found in one model; each kind of model adds its own results."""

    name: str
    about: dict[str, Any]
    check: SelfCheck
    skipped: dict[str, str] = field(default_factory=dict[str, str])
    """Why something was not measured, by its name."""
    notes: list[str] = field(default_factory=list[str])
    """What a reader of the numbers has to know."""

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
    """A row for each finding, without the columns that are empty in all of them.

    `reported` adds what the authors write of other models, for pages that are wide enough.
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
    """What a null is called for people; JSON keeps its name."""
    return FOR_PEOPLE.get(null, null)


def number(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def lacks_memory(error: BaseException) -> bool:
    """Whether Python, torch on a CPU or torch on a GPU ran out of memory."""
    said = str(error)
    return isinstance(error, MemoryError) or any(word in said for word in OUT_OF_MEMORY)


def attempt(skipped: dict[str, str], name: str, work: Callable[[], Any]) -> Any:
    """The result of `work`; if it is impossible, None, and the reason in `skipped`.

    Whatever an unknown model does, one measurement must not cost the others.
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
