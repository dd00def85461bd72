"""The ledger as one page."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from bayesattn.console import mistakes
from bayesattn.ledger import words
from bayesattn.ledger.ledger import NAME, Ledger, Record
from bayesattn.report import html
from bayesattn.stats import holm

PAGE = "index.html"
RULE = (
    "Supported: the 95% interval over seeds lies wholly on the claim's side of what it needs. "
    "Refuted: wholly on the other side. Inconclusive: neither. ‡ marks verdicts that also stand "
    "when all claims of the ledger are judged together (Holm's correction at 5%); few seeds can "
    "seldom do that."
)


def render(ledger: Ledger, folder: Path) -> str:
    """The page for `ledger`, whose figures lie in `folder`."""
    records = [record for _, record in sorted(ledger.records.items())]
    counts = Counter(record.result for record in records)
    exhibits = {record.claim.id: list(shown(record, folder)) for record in records}
    every = [exhibit for own in exhibits.values() for exhibit in own]
    still = {
        name: [exhibit for exhibit in own if exhibit["kind"] != "beliefs"]
        for name, own in exhibits.items()
    }
    return html.render(
        "page.html",
        records=records,
        rule=RULE,
        firm=firm(ledger),
        all_exhibits=every,
        players=[exhibit for exhibit in every if exhibit["kind"] == "beliefs"],
        exhibits=still,
        counts={name: counts[name] for name in words.SYMBOLS if counts[name] or name != "error"},
        words=words,
        image=lambda file: html.data_uri(folder / file),
    )


def write_page(folder: Path, path: Path) -> Path:
    """The page for the ledger in `folder`, written to `path`."""
    page = render(Ledger.load(folder / NAME), folder)
    with mistakes():
        path.write_text(page, encoding="utf-8")
    return path


def shown(record: Record, folder: Path) -> Iterator[dict[str, str]]:
    """The interactive parts of a claim whose data is there."""
    for exhibit in record.exhibits:
        try:
            data = json.loads((folder / exhibit.file).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        yield html.embedded(f"{record.claim.id}-{exhibit.kind}", exhibit, data)


def firm(ledger: Ledger) -> set[str]:
    """Claims whose verdict stands after correction for all verdicts of the ledger."""
    chances = {
        name: record.verdict.p
        for name, record in ledger.records.items()
        if record.verdict is not None and record.verdict.p is not None
    }
    standing = holm(list(chances.values()))
    return {name for name, stands in zip(chances, standing, strict=True) if stands}
