"""The ledger as one HTML file: no network, no other files, light and dark, paper and phone."""

import base64
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from bayesattn.console import mistakes
from bayesattn.ledger import words
from bayesattn.ledger.ledger import NAME, Ledger, Record
from bayesattn.stats import holm

PAGE = "index.html"
RULE = (
    "Supported: the 95% interval over seeds lies wholly on the claim's side of what it needs. "
    "Refuted: wholly on the other side. Inconclusive: neither. ‡ marks verdicts that also stand "
    "when all claims of the ledger are judged together (Holm's correction at 5%); few seeds can "
    "seldom do that."
)


def templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("bayesattn.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters["linked"] = linked
    environment.filters["readable"] = readable
    return environment


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
    return (
        templates()
        .get_template("page.html")
        .render(
            records=records,
            rule=RULE,
            firm=firm(ledger),
            all_exhibits=every,
            players=[exhibit for exhibit in every if exhibit["kind"] == "beliefs"],
            exhibits=still,
            counts={
                name: counts[name] for name in words.SYMBOLS if counts[name] or name != "error"
            },
            words=words,
            image=lambda file: data_uri(folder / file),
        )
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
        yield embedded(f"{record.claim.id}-{exhibit.kind}", exhibit, data)


def embedded(name: str, exhibit: Any, data: Any) -> dict[str, str]:
    """An exhibit for a template, with its data inside the page."""
    words = {part: getattr(exhibit, part) for part in ("kind", "title", "caption")}
    return {"id": name, **words, "data": script_data(data)}


def script_data(data: Any) -> Markup:
    """JSON for a script element: no "</script>" may come up inside."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))


def firm(ledger: Ledger) -> set[str]:
    """Claims whose verdict stands after correction for all verdicts of the ledger."""
    chances = {
        name: record.verdict.p
        for name, record in ledger.records.items()
        if record.verdict is not None and record.verdict.p is not None
    }
    standing = holm(list(chances.values()))
    return {name for name, stands in zip(chances, standing, strict=True) if stands}


def linked(text: str) -> Markup:
    """Each arXiv number becomes a link."""
    link = r'<a href="https://arxiv.org/abs/\1">arXiv \1</a>'
    return Markup(re.sub(r"arXiv (\d{4}\.\d{5})", link, str(escape(text))))


def readable(value: object) -> str:
    """A setting or a list of numbers as text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def data_uri(path: Path) -> str | None:
    """An SVG as an address that holds the whole file; None if it is gone."""
    try:
        encoded = base64.b64encode(path.read_bytes()).decode("ascii")
    except OSError:
        return None
    return f"data:image/svg+xml;base64,{encoded}"
