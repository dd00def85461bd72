"""The ledger as Markdown: the table of a README, and a documentation page for each claim.

What only a person can say about a claim stands in `docs/claims/notes/CLAIM.md` and is put at the
end of its page.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bayesattn.claims.registry import all_studies
from bayesattn.errors import UserError
from bayesattn.ledger import words
from bayesattn.ledger.ledger import Ledger, Record
from bayesattn.ledger.study import AnyStudy

BEGIN, END = "<!-- ledger:begin -->", "<!-- ledger:end -->"
INDEX = "index"
SOURCE = "<!-- `make results` writes this page: edit the claim, or notes/{name}.md. -->"


def table(ledger: Ledger) -> str:
    """One row per claim."""
    rows = [("claim", "reported", "measured", "null", "verdict")]
    for name, record in sorted(ledger.records.items()):
        claim, found = record.claim, (words.measured(record), _null(record), words.verdict(record))
        rows.append((f"`{name}` {claim.statement}", claim.reported, *found))
    return _table(rows)


def fill(path: Path, ledger: Ledger) -> None:
    """Replace what stands between the marks in `path` by the table."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"Cannot read {path} ({error.strerror}).") from None
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise UserError(f"{path} needs a line {BEGIN} and after it a line {END} for the table.")
    path.write_text(f"{before}{BEGIN}\n{table(ledger)}\n{END}{after}", encoding="utf-8")


def pages(ledger: Ledger, notes: Path) -> dict[str, str]:
    """The text of every page, by file name."""
    studies = all_studies()
    found = {
        f"{study.claim.id}.md": page(study, ledger.records.get(study.claim.id), notes)
        for study in studies
    }
    return {f"{INDEX}.md": index(studies, ledger.records, notes), **found}


def page(study: AnyStudy, record: Record | None, notes: Path) -> str:
    """One claim: what it says, how it is measured, what was recorded, and the note."""
    claim = study.claim
    parts = [
        SOURCE.format(name=claim.id),
        f"# {claim.id}",
        f"**Claim.** {claim.statement}",
        f"**Source.** {_linked(claim.source)}",
        f"**Reported.** {claim.reported}",
        f"**Method.** {study.method}",
        f"**Null.** {study.null}",
        "## Recorded",
        *(_recorded(record) if record else ["Nothing is recorded yet."]),
        _command(claim.id, record),
        *_note(claim.id, notes),
    ]
    return "\n\n".join(parts) + "\n"


def index(studies: list[AnyStudy], records: Mapping[str, Record], notes: Path) -> str:
    """All claims with their verdicts, after the note on how to read them."""
    rows = [("claim", "statement", "verdict")]
    for study in studies:
        name, record = study.claim.id, records.get(study.claim.id)
        verdict = words.verdict(record) if record else "–"
        rows.append((f"[{name}]({name}.md)", study.claim.statement, verdict))
    parts = [SOURCE.format(name=INDEX), "# Claims", *_note(INDEX, notes), _table(rows)]
    return "\n\n".join(parts) + "\n"


def write(ledger: Ledger, folder: Path) -> None:
    """Write all pages into `folder`, whose `notes` are read."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages(ledger, folder / "notes").items():
        (folder / name).write_text(text, encoding="utf-8")


def _recorded(record: Record) -> Iterator[str]:
    heading = ("verdict", "measured", "null", "seeds", "tier", "commit")
    found = (words.verdict(record), words.measured(record), _null(record))
    facts = (str(len(record.seeds)), str(record.tier), (record.commit or "–")[:7])
    yield _table([heading, (*found, *facts)])
    if record.verdict:
        yield f"**Why.** {record.verdict.reason}"
    elif record.failure:
        yield f"**Why.** {record.failure.sentence}"
    for figure in record.figures:
        yield f"![{figure.alt}]({figure.file})"
        yield f"*{figure.caption}*"


def _command(name: str, record: Record | None) -> str:
    options = f" --tier {record.tier} --seeds {len(record.seeds)}" if record else ""
    return f"    bayesattn claims run {name}{options}"


def _note(name: str, notes: Path) -> Iterator[str]:
    path = notes / f"{name}.md"
    if path.exists():
        yield path.read_text(encoding="utf-8").strip()


def _linked(text: str) -> str:
    return re.sub(r"arXiv (\d{4}\.\d{5})", r"[arXiv \1](https://arxiv.org/abs/\1)", text)


def _null(record: Record) -> str:
    return words.number(record.verdict.null) if record.verdict else "–"


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    heading, *others = rows
    return "\n".join(
        "| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |"
        for row in (heading, ("---",) * len(heading), *others)
    )
