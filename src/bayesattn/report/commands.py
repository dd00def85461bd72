"""`bayesattn demo`, `bayesattn report` and `bayesattn prior draw`."""

import os
import sys
import webbrowser
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from bayesattn.console import mistakes, show_rows, write_json
from bayesattn.report.page import render
from bayesattn.report.readme import fill
from bayesattn.studies.commands import JsonTarget, choose, exit_code, measure, result_rows
from bayesattn.studies.ledger import NAME, Ledger
from bayesattn.studies.study import Tier

PAGE = "index.html"


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Measure every claim in its quick tier and show what holds on one page."""

    only: Annotated[tuple[str, ...], arg(metavar="[STUDY ...]")] = ()
    """Measure only these claims."""
    skip: Annotated[tuple[str, ...], arg(metavar="[STUDY ...]")] = ()
    """Measure all but these claims."""
    seeds: Annotated[int | None, arg(metavar="N")] = None
    """Number of seeds; each study's own if not given."""
    budget: Annotated[float | None, arg(metavar="MINUTES")] = None
    """Measure only what can be done in this time, and say what is left out."""
    workers: Annotated[int | None, arg(metavar="N")] = None
    """Jobs at once, one core each; as many as there are cores if not given."""
    out: Path = Path("report")
    """Folder of ledger.json, figures and index.html."""
    no_open: bool = False
    """Do not open the page in a browser, as is done when a person is watching."""
    json: JsonTarget = None
    """Write the records as JSON to this file ("-": standard output) instead of a table."""

    def run(self) -> int:
        """Measure, write the page, open it."""
        studies = choose(Tier.QUICK, self.only, self.skip)
        limits = {"workers": self.workers, "budget": self.budget}
        records = measure(studies, Tier.QUICK, self.out, self.seeds, **limits)
        page = write_page(self.out, self.out / PAGE)
        if self.json:
            write_json([asdict(record) for record in records], self.json)
        else:
            show_rows(result_rows(records))
            print(f"\nReport: {page}")
        if someone_is_watching() and not self.no_open:
            webbrowser.open(page.resolve().as_uri())
        return exit_code(records)


@dataclass(frozen=True, kw_only=True)
class Report:
    """Write a ledger as one self-contained page, or as the table of a Markdown file."""

    folder: Annotated[Positional[Path], arg(metavar="[FOLDER]")] = Path("report")
    """Folder of ledger.json and figures."""
    output: Annotated[Path | None, arg(aliases=["-o"], metavar="FILE")] = None
    """The page to write; index.html in the folder if not given."""
    readme: Annotated[Path | None, arg(metavar="FILE")] = None
    """Fill the table between the ledger marks of this Markdown file instead."""

    def run(self) -> int:
        """Write the page or the table."""
        if self.readme:
            with mistakes():
                fill(self.readme, Ledger.load(self.folder / NAME))
            print(self.readme)
        if self.output or not self.readme:
            print(write_page(self.folder, self.output or self.folder / PAGE))
        return 0


@dataclass(frozen=True, kw_only=True)
class DrawPrior:
    """Draw a prior over distance, one line per head."""

    name: Annotated[Positional[str], arg(metavar="PRIOR")]
    """uniform, laplace, ggd, student or bucketed."""
    output: Annotated[Path | None, arg(aliases=["-o"], metavar="FILE")] = None
    """Image to write, its kind told by the ending; NAME.png if not given."""
    heads: int = 8
    """Number of heads."""
    length: int = 128
    """Number of distances."""

    def run(self) -> int:
        """Draw the prior."""
        from matplotlib.figure import Figure

        from bayesattn.priors import make_prior

        path = self.output or Path(f"{self.name}.png")
        with mistakes():
            figure = Figure(figsize=(7, 4), layout="constrained")
            make_prior(self.name, self.heads).draw(self.length, figure.add_subplot())
            figure.savefig(path, dpi=150)
        print(path)
        return 0


def write_page(folder: Path, path: Path) -> Path:
    """The page for the ledger in `folder`, written to `path`."""
    page = render(Ledger.load(folder / NAME), folder)
    with mistakes():
        path.write_text(page, encoding="utf-8")
    return path


def someone_is_watching() -> bool:
    """Whether opening a browser would show the page to a person."""
    screen = (
        sys.platform != "linux" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
    return bool(sys.stdout.isatty() and screen and not os.environ.get("CI"))
