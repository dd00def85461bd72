"""Fills the ledger table of a Markdown file, between two comments that mark its place."""

from pathlib import Path

from bayesattn.errors import UserError
from bayesattn.ledger import words
from bayesattn.ledger.ledger import Ledger

BEGIN, END = "<!-- ledger:begin -->", "<!-- ledger:end -->"


def table(ledger: Ledger) -> str:
    """The ledger as a Markdown table, one row per claim."""
    rows = [("claim", "reported", "measured", "null", "verdict"), ("---",) * 5]
    for name, record in sorted(ledger.records.items()):
        claim = record.claim
        rows.append(
            (
                f"`{name}` {claim.statement}",
                claim.reported,
                words.measured(record),
                words.number(record.verdict.null) if record.verdict else "–",
                words.verdict(record),
            )
        )
    return "\n".join(
        "| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in rows
    )


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
