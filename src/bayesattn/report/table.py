"""The ledger's table: what papers state beside its control, what we state, and identities.

The words come from what is registered now, so that they can be mended. A row that was judged by
another registration does not count.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bayesattn.claims.recorded import agrees, recorded_row, standing
from bayesattn.ledger import words
from bayesattn.ledger.ledger import Ledger, Row
from bayesattn.ledger.statement import Claim, Statement
from bayesattn.verdicts import WORDS, Kind

HEADINGS = {
    Kind.REPLICATION: "As reported?",
    Kind.CONTROL: "After the control?",
    Kind.OURS: "Ours:",
    Kind.IDENTITY: "Identities (proved, so counted apart):",
}
NOT_MEASURED, NO_VERDICT = "not measured yet", "without a verdict"
RULE = (
    "The interval over seeds, taken after 4, 8 or 12 of them (8, 16 or 32 where seeds are cheap), "
    "lies on the statement's side of a limit that was registered before, or on the other side; "
    "else the statement is undecided. Intervals are those of the look that decided: 99.7, 98.5 or "
    f"96.3 %. {words.FIRM} marks verdicts that also stand when all statements are judged together "
    "(Holm's correction at 5 %). Identities have no sampling error."
)


class Cell(NamedTuple):
    """A statement and what the ledger says of it."""

    claim: Claim
    own: Statement
    row: Row | None
    firm: bool = False
    problem: str = ""
    """How its measurement crashed."""
    begun: int = 0
    """Number of seeds that are there, if the first look needs more."""

    @property
    def there(self) -> bool:
        """Whether something was measured, or tried."""
        return self.row is not None or bool(self.problem)

    @property
    def id(self) -> str:
        return f"{self.claim.id}/{self.own.name}"

    @property
    def state(self) -> str:
        """yes, no, undecided, error, or none without a verdict."""
        if self.problem:
            return "error"
        return self.row.outcome or "none" if self.row else "none"

    @property
    def verdict(self) -> str:
        """In words, with a symbol."""
        if self.problem:
            return words.ERROR
        if self.begun:
            return f"{self.begun} of the {self.own.looks[0]} seeds of the first look"
        if self.row is None:
            return NOT_MEASURED
        if self.row.outcome is None:
            return self._direction(self.row)
        return words.verdict(self.row) + (f" {words.FIRM}" if self.firm else "")

    @property
    def numbers(self) -> list[str]:
        """What was measured, and on how many seeds."""
        if self.row is None:
            return []
        return [
            *([words.measured(self.own, self.row)] if self.row.seeds else []),
            words.seeds(self.row),
        ]

    @property
    def facts(self) -> list[str]:
        """The numbers, each in a few words."""
        row = self.row
        if row is None:
            return []
        *facts, seeds = self.numbers
        if row.comparator is not None:
            facts.append(f"comparator {words.number(row.comparator)}")
        facts.append(seeds)
        if row.outcome is None:
            facts.append(self._recorded(row))
        if row.needed:
            facts.append(f"about {row.needed:,} seeds would decide")
        return facts

    @property
    def command(self) -> str:
        return words.command(self.claim.id)

    def _direction(self, row: Row) -> str:
        if row.value is None:
            return "nothing to judge by"
        return "speaks for it" if self.own.says_yes(row.value) else "speaks against it"

    def _recorded(self, row: Row) -> str:
        other = recorded_row(self.claim.id, self.own)
        if other is None:
            return "nothing is recorded"
        same = "in agreement" if agrees(self.own, row, other) else "in disagreement"
        return f"recorded, {same}: {words.verdict(other)}, {words.measured(self.own, other)}"


class Line(NamedTuple):
    """What a paper states, with what is left of it after controls."""

    claim: Claim
    own: Statement
    reported: list[Cell]
    controlled: list[Cell]

    @property
    def cells(self) -> list[Cell]:
        return [*self.reported, *self.controlled]

    @property
    def scale(self) -> str:
        """Where it was measured; each once."""
        return "; ".join(dict.fromkeys(cell.own.scale for cell in self.cells))


class Table(NamedTuple):
    """All statements of some claims."""

    lines: list[Line]
    ours: list[Cell]
    identities: list[Cell]
    unregistered: list[Claim]
    """Claims that have no statements yet."""

    @property
    def cells(self) -> list[Cell]:
        return [*(cell for line in self.lines for cell in line.cells), *self.ours, *self.identities]

    def counts(self) -> Iterator[str]:
        """How many statements of each kind have which verdict; nothing of what was not measured."""
        for kind, heading in HEADINGS.items():
            found = Counter(_said(cell) for cell in self.cells if cell.own.kind is kind)
            order = (*WORDS[kind], "undecided", NO_VERDICT, "error")
            said = ", ".join(f"{word} {found[word]}" for word in order if found[word])
            if said:
                yield f"{heading} {said}."

    def measured(self) -> "Table":
        """The same without what was not measured."""
        return Table(
            [line for line in self.lines if any(cell.there for cell in line.cells)],
            [cell for cell in self.ours if cell.there],
            [cell for cell in self.identities if cell.there],
            self.unregistered,
        )

    def waiting(self) -> list[str]:
        """Claims of which nothing was measured, though there is something to measure."""
        there = {cell.claim.id: False for cell in self.cells}
        there |= {cell.claim.id: True for cell in self.cells if cell.there}
        return [name for name, measured in there.items() if not measured]


def make_table(claims: Sequence[Claim], ledger: Ledger) -> Table:
    """Every statement of `claims` with what `ledger` says of it."""
    firm = standing(ledger)
    table = Table([], [], [], [claim for claim in claims if not claim.statements])
    for claim in claims:
        cells = {own.name: make_cell(claim, own, ledger, firm) for own in claim.statements}
        by_kind = {
            kind: [cell for cell in cells.values() if cell.own.kind is kind] for kind in Kind
        }
        table.lines.extend(_lines(claim, by_kind[Kind.REPLICATION], by_kind[Kind.CONTROL]))
        table.ours.extend(by_kind[Kind.OURS])
        table.identities.extend(by_kind[Kind.IDENTITY])
    return table


def make_cell(claim: Claim, own: Statement, ledger: Ledger, firm: set[str]) -> Cell:
    """A statement with its row, if that was judged by the statement as it is registered.

    Before its first look a statement has no verdict, so its row is not shown.
    """
    record = ledger.records.get(claim.id)
    if record is None:
        return Cell(claim, own, None)
    row = record.rows.get(own.name)
    if row is None or row.registered != own.hash:
        return Cell(claim, own, None, problem=record.failure.sentence if record.failure else "")
    seeds = len(row.seeds) + len(row.left_out)
    if row.outcome is not None and own.empirical and seeds < own.looks[0]:
        return Cell(claim, own, None, begun=seeds)
    return Cell(claim, own, row, f"{claim.id}/{own.name}" in firm)


def _lines(claim: Claim, replications: list[Cell], controls: list[Cell]) -> Iterator[Line]:
    only = replications[0].own.name if len(replications) == 1 else ""
    of = {cell.id: cell.own.of or only for cell in controls}
    for cell in replications:
        own = [control for control in controls if of[control.id] == cell.own.name]
        yield Line(claim, cell.own, [cell], own)
    for control in controls:
        if not of[control.id]:
            yield Line(claim, control.own, [], [control])


def _said(cell: Cell) -> str:
    if cell.problem:
        return "error"
    if cell.row is None:
        return NOT_MEASURED
    return cell.row.verdict or NO_VERDICT
