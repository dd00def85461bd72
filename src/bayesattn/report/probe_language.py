"""Examinations as one HTML file that needs no other, or as a folder of its parts."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bayesattn.drawing import Picture, house_style
from bayesattn.figures.probe_language import pictures
from bayesattn.files import write_json, write_text
from bayesattn.probes.criteria import summary
from bayesattn.probes.llm.examination import Examination
from bayesattn.probes.llm.findings import SCHEMA, findings, to_dict
from bayesattn.report.probe import data_uri, make_environment

HEADINGS = {"plane": "The axis of its states", "keys": "Keys", "attention": "Attention by depth"}


def content(found: list[Examination]) -> dict[str, Any]:
    """What probe.json holds."""
    return {"schema": SCHEMA, "models": [to_dict(one) for one in found]}


def write(out: Path, found: list[Examination], title: str, subtitle: str) -> Path:
    """Write the page to `out` if it ends in .html, else index.html and all parts into `out`."""
    with house_style():
        drawn = pictures(found)
    if out.suffix == ".html":
        with TemporaryDirectory() as folder:
            write_text(out, _page(drawn, Path(folder), found, title, subtitle))
        return out
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "probe.json", content(found))
    page = out / "index.html"
    write_text(page, _page(drawn, out, found, title, subtitle))
    with house_style():
        for picture in drawn:
            path = out / f"{picture.name}.png"
            options: Any = {"dpi": 150, "facecolor": "white", "metadata": {"Software": None}}
            picture.figure.savefig(path, **options)
    return page


def _page(
    drawn: list[Picture], folder: Path, found: list[Examination], title: str, subtitle: str
) -> str:
    shown = [
        {
            "heading": HEADINGS[picture.name.partition("-")[0]],
            "source": data_uri(picture, folder / f"{picture.name}.svg"),
            "caption": picture.caption,
            "alt": picture.alt,
        }
        for picture in drawn
    ]
    models = [
        {
            "name": one.name,
            "about": {**one.model, "self-check": "passed" if one.check.get("good") else "failed"},
            "prompts": one.prompts,
            "paper": one.paper,
            "summary": summary(one.paper),
            "ours": one.ours,
            "notes": one.notes,
            "failed": one.failed,
            "rows": [
                {**finding.row(), "reported": finding.reported or ""} for finding in findings(one)
            ],
        }
        for one in found
    ]
    template = make_environment().get_template("llm.html")
    return template.render(title=title, subtitle=subtitle, pictures=shown, models=models)
