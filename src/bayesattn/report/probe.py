"""What was found as one HTML file that needs no other, or as a folder of its parts."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from markupsafe import Markup

from bayesattn.drawing import Picture, house_style, save_picture
from bayesattn.figures.probe import pictures
from bayesattn.files import write_json, write_text
from bayesattn.probes.examination import (
    Criterion,
    Examination,
    Row,
    table,
    to_json,
)
from bayesattn.report import html
from bayesattn.report.headlines import Headlines, headlines
from bayesattn.report.strips import strips
from bayesattn.system import environment

HEADINGS = {
    "fidelity": "What it believes, beside exact Bayes",
    "focusing": "Where queries look",
    "manifold": "The shape of its states",
    "ablation": "What it needs",
    "drift": "How training came to rest",
    "advantage": "Where attention pays",
    "plane": "The axis of its states",
    "keys": "Keys",
    "attention": "Attention by depth",
}
PNG: Any = {"dpi": 150, "facecolor": "white", "metadata": {"Software": None}}


FIRST = 3
"""Pictures that lead a page, each under its sentence."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """What a page says of one model."""

    rows: Sequence[Row]
    name: str = ""
    card: Mapping[str, str] = field(default_factory=dict[str, str])
    """What to write beside the numbers wherever they are shown: sizes, prompts, command."""
    notes: Sequence[str] = ()
    criteria: dict[str, list[Criterion]] = field(default_factory=dict[str, list[Criterion]])
    skipped: dict[str, str] = field(default_factory=dict[str, str])
    prompts: Sequence[str] = ()

    @property
    def drawn(self) -> list[tuple[Row, Markup]]:
        """Each row, and the drawing of its number beside its nulls."""
        return list(zip(self.rows, strips(self.rows), strict=True))

    @property
    def card_text(self) -> str:
        width = max(map(len, self.card), default=0) + 2
        return "\n".join(f"{name:{width}}{value}" for name, value in self.card.items())


def require_writable(out: Path | None, json: str | None) -> None:
    """A page or a file that cannot be written is found out before the work, not after it."""
    files = [] if json in (None, "-") else [Path(json)]
    for target in [*files, *([out] if out else [])]:
        parent = target.parent
        if not parent.is_dir() or not os.access(parent, os.W_OK):
            raise ValueError(f"Cannot write {target}: {parent} is no folder to write in.")
    if out and out.suffix == ".html" and out.is_dir():
        raise ValueError(f"Cannot write {out}: it is a folder.")
    if out and out.suffix != ".html" and out.is_file():
        raise ValueError(f"--out is a page that ends in .html, or a folder, not {out}.")


def write(out: Path, found: Sequence[Examination], command: str) -> Path:
    """The page of some models, which `command` has looked into; see `write_page`."""
    title = found[0].title if len(found) == 1 else " · ".join(one.name for one in found)
    subtitle = "; ".join(dict.fromkeys(one.subtitle for one in found))
    sections = [_section(one, command) for one in found]
    content = {"title": title, "subtitle": subtitle, "sections": sections}
    content["headlines"] = headlines(found)
    return write_page(out, "probe.json", to_json(found), pictures(found), HEADINGS, content)


def write_page(
    out: Path,
    name: str,
    data: Any,
    drawn: Sequence[Picture],
    headings: dict[str, str],
    content: dict[str, Any],
) -> Path:
    """Write the page to `out` if it ends in .html, else index.html and all parts into `out`.

    The numbers `data` are kept in the file `name`; headings go by kind of picture.
    """
    if out.suffix == ".html":
        with TemporaryDirectory() as folder:
            write_text(out, _render(drawn, Path(folder), headings, content))
        return out
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / name, data)
    page = out / "index.html"
    write_text(page, _render(drawn, out, headings, content))
    with house_style():
        for picture in drawn:
            picture.figure.savefig(out / f"{picture.name}.png", **PNG)
    return page


def _render(
    drawn: Sequence[Picture], folder: Path, headings: dict[str, str], content: dict[str, Any]
) -> str:
    shown: list[dict[str, Any]] = []
    said: Headlines = dict(content.get("headlines", {}))
    for picture in drawn:
        path = folder / f"{picture.name}.svg"
        save_picture(picture, path)
        kind = picture.name.partition("-")[0]
        shown.append(
            {
                "name": picture.name,
                "heading": headings[kind],
                "sentences": said.pop(kind, []),
                "caption": picture.caption,
                "alt": picture.alt,
                "source": html.data_uri(path),
            }
        )
    # a stable sort: pictures with a sentence first, in the order of the sentences
    order = list(content.get("headlines", {}))
    shown.sort(key=lambda one: order.index(one["name"]) if one["sentences"] else len(order))
    lead, rest = shown[:FIRST], shown[FIRST:]
    return html.render("probe.html", lead=lead, pictures=rest, **content)


def _section(found: Examination, command: str) -> Section:
    prompts = found.results().get("prompts", {})
    return Section(
        name=found.name,
        card=_card(found, prompts, command),
        notes=found.notes,
        criteria=found.criteria,
        skipped=found.skipped,
        rows=table(found.findings, reported=True),
        prompts=prompts.get("texts", ()),
    )


def _card(found: Examination, prompts: Mapping[str, Any], command: str) -> dict[str, str]:
    card = {name.replace("_", " "): _words(value) for name, value in found.about.items()}
    card = {name: value for name, value in card.items() if value}
    if prompts:
        card["prompts"] = (
            f"{found.subtitle}; {prompts['distinct last tokens']} different last tokens, "
            f"{prompts['distinct tokens']} different tokens"
        )
    else:
        card["measured on"] = found.subtitle
    card["self-check"] = found.check.sentence
    card["command"] = command
    card["versions"] = _words(environment())
    return card


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_words(x)}" for name, x in value.items() if x is not None)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "" if value is None else str(value)
