"""An examination as one HTML file that needs no other, or as a folder of its parts."""

import base64
import json
from pathlib import Path
from tempfile import TemporaryDirectory

from jinja2 import Environment, PackageLoader, StrictUndefined

from bayesattn.drawing import Picture, house_style, save_picture
from bayesattn.evals.fidelity import EVAL_SEED, measure
from bayesattn.figures import probe as drawing
from bayesattn.figures import tunnel as fidelity_drawing
from bayesattn.probes.examination import Examination, Subject
from bayesattn.probes.table import rows

HEADINGS = {
    "fidelity": "What it believes, beside exact Bayes",
    "focusing": "Where queries look",
    "manifold": "The shape of its states",
    "ablation": "What it needs",
    "drift": "How training came to rest",
    "advantage": "Where attention pays",
}
EXAMPLES = 3


def pictures(subject: Subject, found: Examination) -> list[Picture]:
    """Those that there is something to draw for."""
    shown = fidelity_drawing.beliefs(subject.model, subject.tunnel, EXAMPLES, EVAL_SEED + 1)
    fidelity = measure(subject.model, subject.tunnel, sequences=found.sequences)
    with house_style():
        drawn = [fidelity_drawing.draw(fidelity, shown, subject.tunnel.horizon, "")]
        if found.focusing:
            drawn.append(drawing.draw_focusing(found.focusing))
        drawn.append(drawing.draw_manifold(subject))
        if found.ablation is not None:
            drawn.append(drawing.draw_ablation(found.ablation))
        if found.drift is not None:
            drawn.append(drawing.draw_drift(found.drift))
        if found.focusing:
            drawn.append(drawing.draw_advantage(subject))
    return drawn


def write(out: Path, subject: Subject, found: Examination, title: str, subtitle: str) -> Path:
    """Write the page to `out` if it ends in .html, else index.html and all parts into `out`."""
    drawn = pictures(subject, found)
    if out.suffix == ".html":
        with TemporaryDirectory() as folder:
            out.write_text(_page(drawn, Path(folder), found, title, subtitle), encoding="utf-8")
        return out
    out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(found.to_dict(), indent=1, ensure_ascii=False)
    (out / "probe.json").write_text(f"{text}\n", encoding="utf-8")
    page = out / "index.html"
    page.write_text(_page(drawn, out, found, title, subtitle), encoding="utf-8")
    return page


def make_environment() -> Environment:
    """Where the templates of pages are."""
    return Environment(
        loader=PackageLoader("bayesattn.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )


def data_uri(picture: Picture, path: Path) -> str:
    """The picture, saved as SVG, as an address that holds the whole file."""
    with house_style():
        save_picture(picture, path)
    return f"data:image/svg+xml;base64,{base64.b64encode(path.read_bytes()).decode('ascii')}"


def _page(drawn: list[Picture], folder: Path, found: Examination, title: str, subtitle: str) -> str:
    shown = [
        {
            "heading": HEADINGS[picture.name],
            "source": data_uri(picture, folder / f"{picture.name}.svg"),
            "caption": picture.caption,
            "alt": picture.alt,
        }
        for picture in drawn
    ]
    return (
        make_environment()
        .get_template("probe.html")
        .render(
            title=title, subtitle=subtitle, pictures=shown, rows=rows(found), skipped=found.skipped
        )
    )
