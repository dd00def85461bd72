"""SULA as one HTML file that needs no other, or as a folder of its parts."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bayesattn.drawing import Picture, house_style
from bayesattn.figures.sula import pictures
from bayesattn.files import write_text
from bayesattn.probes.llm.sula_examination import SulaFound
from bayesattn.report.probe import data_uri, make_environment

HEADINGS = {
    "entropy": "What it believes, beside exact Bayes",
    "movement": "Where evidence moves its states",
    "intervention": "What cutting the axis does",
}


def write(out: Path, found: SulaFound, about: dict[str, Any], title: str, subtitle: str) -> Path:
    """Write the page to `out` if it ends in .html, else index.html and all parts into `out`."""
    with house_style():
        drawn = pictures(found)
    if out.suffix == ".html":
        with TemporaryDirectory() as folder:
            write_text(out, _page(drawn, Path(folder), found, title, subtitle))
        return out
    out.mkdir(parents=True, exist_ok=True)
    text = json.dumps({**about, **found.to_dict()}, indent=1, ensure_ascii=False)
    write_text(out / "sula.json", f"{text}\n")
    page = out / "index.html"
    write_text(page, _page(drawn, out, found, title, subtitle))
    return page


def _page(drawn: list[Picture], folder: Path, found: SulaFound, title: str, subtitle: str) -> str:
    shown = [
        {
            "heading": HEADINGS[picture.name],
            "source": data_uri(picture, folder / f"{picture.name}.svg"),
            "caption": picture.caption,
            "alt": picture.alt,
        }
        for picture in drawn
    ]
    template = make_environment().get_template("probe.html")
    return template.render(
        title=title, subtitle=subtitle, pictures=shown, rows=found.rows(), skipped=found.skipped
    )
