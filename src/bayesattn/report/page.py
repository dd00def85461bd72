"""The ledger as one HTML file: no network, no other files, light and dark, paper and phone."""

import base64
import json
import re
from collections import Counter
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from bayesattn.studies import words
from bayesattn.studies.ledger import Ledger


def render(ledger: Ledger, folder: Path) -> str:
    """The page for `ledger`, whose figures lie in `folder`."""
    environment = Environment(
        loader=PackageLoader("bayesattn.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters["linked"] = linked
    environment.filters["readable"] = readable
    records = [record for _, record in sorted(ledger.records.items())]
    counts = Counter(record.result for record in records)
    return environment.get_template("page.html").render(
        records=records,
        counts={name: counts[name] for name in words.SYMBOLS if counts[name] or name != "error"},
        words=words,
        image=lambda file: data_uri(folder / file),
    )


def linked(text: str) -> Markup:
    """`text` with each arXiv number as a link."""
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
