"""The ledger as Markdown: the table of a README, and a documentation page for each claim.

What only a person can say about a claim stands in `docs/claims/notes/CLAIM.md` and is put at the
end of its page.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from bayesattn.claims.recorded import standing
from bayesattn.claims.registry import listed
from bayesattn.errors import UserError
from bayesattn.files import read_json
from bayesattn.ledger import words
from bayesattn.ledger.ledger import FigureFile, Ledger, Record
from bayesattn.ledger.statement import Claim
from bayesattn.report.table import RULE, Cell, make_cell, make_table
from bayesattn.verdicts import Kind

HEADLINES = (
    "bam-retrieval/published",
    "tunnel-bijection/never-returning",
    "tunnel-mlp/bijection",
    "geometry-keys/first-layer",
    "geometry-values/one-axis",
    "geometry-ffn/needed",
    "dynamics-em/published-rates",
    "llm-values/order",
    "llm-domain/collapse",
    "llm-sula/pairs-vary",
    "llm-causal/calibration",
)
"""Lines of the ledger in the README: what the abstracts of the papers state first, in the order of
the papers. A claim has one line, and whatever its verdict is does not matter."""
SUBJECT = "The model with far heads in its last layer"
"""What "it" is in statements on how far needles are found."""


class Lead(NamedTuple):
    """A figure that may come first, and the statements that may stand above it, best first."""

    claim: str
    figure: str
    statements: tuple[str, ...]


LEADS = (
    Lead("league", "league", ("million", "first")),
    Lead("million-tokens", "league", ("finds-8192x", "finds-2048x", "finds-512x", "finds-64x")),
    Lead("bam-retrieval", "league", ("ours-lead-strongest", "published")),
    Lead("ssmax-horizon", "league", ("farther-512x", "farther-128x")),
)
"""How far needles are found; the best that is recorded leads."""
BEGIN, END = "<!-- ledger:begin -->", "<!-- ledger:end -->"
INDEX = "index"
SOURCE = "<!-- `make results` writes this page: edit the claim, or notes/{name}.md. -->"
FIRST_EDITION = (
    "*These notes are of the first edition: its recipes, seeds and rules were others, and nothing "
    "in them decides what is recorded above.*"
)
TITLES = {
    Kind.REPLICATION: "What the authors state",
    Kind.CONTROL: "What is left after the control",
    Kind.OURS: "What we state",
    Kind.IDENTITY: "What is proved",
}


def table(claims: Sequence[Claim], ledger: Ledger, pages: str) -> str:
    """All statements: those of papers with both columns, ours, and identities.

    Args:
        claims: which.
        ledger: what is recorded of them.
        pages: where the claims' pages are, from the table.
    """
    every = make_table(claims, ledger)
    found = every.measured()

    def name(claim: Claim) -> str:
        return f"[{claim.id}]({pages}{claim.id}.md)"

    papers = [("what a paper states", "as reported?", "after the control?", "measured on")]
    for line in found.lines:
        cells = (_cells(line.reported, reported=True), _cells(line.controlled))
        papers.append((f"{name(line.claim)} {line.own.text}", *cells, line.scale))
    parts = [" ".join(found.counts()), _table(papers) if found.lines else ""]
    for heading, own in (("what we state", found.ours), ("identities", found.identities)):
        rows = [(heading, "verdict", "measured on")]
        rows += [(f"{name(c.claim)} {c.own.text}", _cells([c]), c.own.scale) for c in own]
        parts.append(_table(rows) if own else "")
    by_name = {claim.id: claim for claim in claims}
    for said, missing in (
        ("Registered, not measured yet", [by_name[own] for own in every.waiting()]),
        ("Not registered yet, so not judged", found.unregistered),
    ):
        if missing:
            parts.append(f"{said}: {', '.join(map(name, missing))}.")
    return "\n\n".join(part for part in [*parts, RULE] if part)


def summary(claims: Sequence[Claim], ledger: Ledger, pages: str) -> str:
    """A line for each of `HEADLINES` that was measured, and counts of all statements."""
    found = make_table(claims, ledger)
    lines = {
        f"{line.claim.id}/{line.own.name}": line
        for line in found.lines
        if any(cell.there for cell in line.cells)
    }
    rows = [("what a paper states", "as reported?", "after the control?", "measured on")]
    for line in (lines[name] for name in HEADLINES if name in lines):
        name = f"[{line.claim.id}]({pages}{line.claim.id}.md)"
        cells = (_briefly(line.reported), _briefly(line.controlled))
        rows.append((f"{line.own.text} {name}", *cells, line.own.scale))
    there = sum(cell.there for cell in found.cells)
    counts = [*found.counts(), f"Measured so far: {there} of {len(found.cells)} statements."]
    return "\n\n".join([*([_table(rows)] if rows[1:] else []), " ".join(counts)])


def _briefly(cells: Sequence[Cell]) -> str:
    """One verdict with its number; of several, how many have which verdict."""
    if len(cells) == 1:
        return f"**{cells[0].verdict}** {'; '.join(cells[0].numbers)}".rstrip()
    found = Counter(cell.verdict.removesuffix(f" {words.FIRM}") for cell in cells)
    return ", ".join(f"**{said}** {n} of {len(cells)}" for said, n in found.items()) or "–"


def costs(path: Path) -> str:
    """The table of costs that is kept as data; nothing if there is none."""
    if not path.exists():
        return ""
    data = read_json(path)
    rows = [tuple(data["columns"]), *(tuple(map(str, row)) for row in data["rows"])]
    return f"{_table(rows)}\n\n{data['said']}"


def lead(ledger: Ledger) -> tuple[FigureFile, str] | None:
    """The first of `LEADS` that is recorded, and a sentence that says what it shows."""
    registered = {claim.id: claim for claim, _ in listed()}
    for own in LEADS:
        record = ledger.records.get(own.claim)
        for figure in record.figures if record else ():
            if Path(figure.file).stem == f"{own.claim}-{own.figure}":
                claim = registered.get(own.claim, record.claim) if record else None
                return figure, _sentence(claim, own.statements, ledger) if claim else ""
    return None


def _sentence(claim: Claim, names: Sequence[str], ledger: Ledger) -> str:
    """A statement with its verdict and its number; the title of the claim if none was judged."""
    firm = standing(ledger)
    by_name = {own.name: make_cell(claim, own, ledger, firm) for own in claim.statements}
    for cell in (by_name[name] for name in names if name in by_name):
        if cell.row is not None and cell.row.value is not None:
            text = cell.own.text.replace("It ", f"{SUBJECT} ", 1)
            return f"Who still finds it? {text} {cell.verdict}: {'; '.join(cell.numbers)}"
    return claim.title


def picture(ledger: Ledger) -> str:
    """The first picture: how far models find needles if that is recorded, else one posterior."""
    found = lead(ledger)
    if found is not None:
        figure, said = found
        return f"![{figure.alt}](results/{figure.file})\n\n*{said}.*"
    return (
        "![One attention row under three priors: likelihood times prior gives the posterior]"
        "(docs/images/posterior.png)\n\n*Two keys match the query equally well. The prior decides "
        "between them. Made by\n`python examples/posterior_row.py`.*"
    )


def fill(path: Path, ledger: Ledger, results: Path) -> None:
    """Replace what stands between the marks in `path`: ledger, and costs and picture if marked."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"Cannot read {path} ({error.strerror}).") from None
    shown = {
        "ledger": summary([claim for claim, _ in listed()], ledger, "docs/claims/"),
        "cost": costs(results / "cost.json"),
        "picture": picture(ledger),
    }
    for name, new in shown.items():
        begin, end = BEGIN.replace("ledger", name), END.replace("ledger", name)
        before, found, rest = text.partition(begin)
        _, ended, after = rest.partition(end)
        if found and ended:
            text = f"{before}{begin}\n{new}\n{end}{after}"
        elif name == "ledger":
            raise UserError(f"{path} needs a line {BEGIN} and after it a line {END} for the table.")
    path.write_text(text, encoding="utf-8")


def pages(ledger: Ledger, notes: Path) -> dict[str, str]:
    """The text of every page, by file name."""
    claims = [claim for claim, _ in listed()]
    found = {f"{claim.id}.md": page(claim, ledger, notes) for claim in claims}
    index = [SOURCE.format(name=INDEX), "# Claims", *_note(INDEX, notes)]
    return {f"{INDEX}.md": "\n\n".join([*index, table(claims, ledger, "")]) + "\n", **found}


def page(claim: Claim, ledger: Ledger, notes: Path) -> str:
    """One claim: what is stated, what was found, how, and what would change our mind."""
    record, firm = ledger.records.get(claim.id), standing(ledger)
    parts = [SOURCE.format(name=claim.id), f"# {claim.id}", claim.title, _linked(claim.source)]
    cells = [make_cell(claim, own, ledger, firm) for own in claim.statements]
    for kind, title in TITLES.items():
        own = [cell for cell in cells if cell.own.kind is kind]
        if own:
            parts += [f"## {title}", *(part for cell in own for part in _statement(cell))]
    if not cells:
        parts.append("No statement is registered yet, so nothing is judged.")
    parts += ["## What we did", claim.method]
    if record and any(cell.row for cell in cells):
        for figure in record.figures:
            parts += [f"![{figure.alt}]({figure.file})", f"*{figure.caption}*"]
    if claim.mind:
        parts += ["## What would change our mind", claim.mind]
    parts += ["## Registration", *_registration(claim, record), f"    {words.command(claim.id)}"]
    return "\n\n".join([*parts, *_note(claim.id, notes, record)]) + "\n"


def write(ledger: Ledger, folder: Path) -> None:
    """Write all pages into `folder`, whose `notes` are read."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages(ledger, folder / "notes").items():
        (folder / name).write_text(text, encoding="utf-8")


def _cells(cells: Sequence[Cell], reported: bool = False) -> str:
    """What stands in one cell of the table: a verdict with its numbers, or several."""
    return "<br>".join(_cell(cell, reported) for cell in cells) or "–"


def _cell(cell: Cell, reported: bool) -> str:
    facts = [f"`{cell.command}`"] if cell.row is None else cell.facts
    if reported and cell.own.reported:
        facts.append(f"authors: {cell.own.reported}")
    told = f"**{cell.verdict}** {'; '.join(facts)}"
    return f"*{cell.own.text}* {told}" if cell.own.kind is Kind.CONTROL else told


def _statement(cell: Cell) -> Iterator[str]:
    """One statement of a claim's page."""
    own, row = cell.own, cell.row
    yield f"### {own.name}"
    yield own.text
    if own.source or own.reported:
        told = [_linked(own.source), f"reported: {own.reported}" if own.reported else ""]
        yield "*" + "; ".join(part for part in told if part) + "*"
    yield f"**{cell.verdict}**" + (f": {row.reason}" if row else "")
    facts = [("measured on", own.scale), ("each seed gives", own.estimand)]
    facts += [("the rule", f"{words.limit(own)}, {_seeds(own.looks)}")]
    facts += [("compared with", own.comparator)]
    if own.premise:
        facts.append(("premise", own.premise))
    if row:
        facts.append(("found", "; ".join(cell.facts)))
        if row.interval and row.level:
            facts.append(("interval", f"{row.level:.1%} over seeds"))
        if row.p is not None:
            facts.append(("p", f"{words.number(row.p)}, rescaled so that at most 0.05 decides"))
    yield _table([("", ""), *facts])


def _seeds(looks: Sequence[int]) -> str:
    """When there is a look.

    >>> _seeds([4, 8, 12]), _seeds([1])
    ('looked at after 4, 8 and 12 seeds', '1 seed')
    """
    if len(looks) == 1:
        return f"{looks[0]} seed{'' if looks[0] == 1 else 's'}"
    return f"looked at after {', '.join(map(str, looks[:-1]))} and {looks[-1]} seeds"


def _registration(claim: Claim, record: Record | None) -> Iterator[str]:
    lines = [f"Version {claim.version}."]
    for change in claim.changes:
        after = " **Made after seeds were seen, which count.**" if change.after else ""
        lines.append(f"- Version {change.version}: {change.reason}{after}")
    yield "\n".join([lines[0], "", *lines[1:]] if claim.changes else lines)
    if record is None:
        yield "Nothing is recorded yet."
    elif record.failure:
        yield f"The measurement crashed: {record.failure.sentence}"
    else:
        commits = ", ".join(commit[:7] for commit in record.commits) or "unknown"
        hours = f"{record.seconds / 3600:.1f} hours" if record.seconds > 3600 else "under an hour"
        yield (
            f"Recorded: {record.tier} tier, seeds {_range(record.seeds)}, measured at commit "
            f"{commits} in {hours}, trainings apart."
        )


def _range(seeds: Sequence[int]) -> str:
    return f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else "".join(map(str, seeds))


def _note(name: str, notes: Path, record: Record | None = None) -> Iterator[str]:
    path = notes / f"{name}.md"
    if not path.exists():
        return
    text = path.read_text(encoding="utf-8").strip()
    told = re.findall(r"^Measured at commit (\w+)", text, re.MULTILINE)
    recorded = record.commits if record else ()
    if any(not any(own.startswith(commit) for own in recorded) for commit in told):
        yield FIRST_EDITION
    yield text


def _linked(text: str) -> str:
    link = r"[arXiv \1\2](https://arxiv.org/abs/\1\2)"
    return re.sub(r"arXiv (\d{4}\.\d{5})(v\d+)?", link, text)


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    heading, *others = rows
    return "\n".join(
        "| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |"
        for row in (heading, ("---",) * len(heading), *others)
    )
