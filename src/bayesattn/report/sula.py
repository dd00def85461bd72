"""SULA as one HTML file that needs no other, or as a folder of its parts."""

from pathlib import Path
from typing import Any

from bayesattn.drawing import house_style
from bayesattn.figures.sula import pictures
from bayesattn.probes.llm.sula_examination import SulaFound
from bayesattn.report.probe import Section, write_page

HEADINGS = {
    "entropy": "What it believes, beside exact Bayes",
    "movement": "Where evidence moves its states",
    "intervention": "What cutting the axis does",
}


def write(out: Path, found: SulaFound, about: dict[str, Any], title: str, subtitle: str) -> Path:
    """The page of one model; see `write_page`."""
    with house_style():
        drawn = pictures(found)
    sections = [Section(rows=found.rows(), skipped=found.skipped)]
    content = {"title": title, "subtitle": subtitle, "sections": sections}
    data = {**about, **found.to_dict()}
    return write_page(out, "sula.json", data, drawn, HEADINGS, content)
