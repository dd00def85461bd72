"""`bayesattn report` and `bayesattn prior draw`."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from bayesattn.claims.registry import find_study
from bayesattn.commands.options import File, OutFile, optional
from bayesattn.console import mistakes
from bayesattn.drawing import check_format
from bayesattn.errors import UserError
from bayesattn.files import write_text, writing
from bayesattn.ledger.judging import draw_figures
from bayesattn.ledger.ledger import NAME, Ledger
from bayesattn.ledger.measured import seed_numbers, seeds_in
from bayesattn.priors import PRIORS, make_prior
from bayesattn.report.markdown import fill
from bayesattn.report.markdown import write as write_pages
from bayesattn.report.page import PAGE, write_page


@dataclass(frozen=True, kw_only=True)
class Report:
    """Write a ledger, or any runs, as one self-contained page; or a ledger as Markdown."""

    folders: Annotated[Positional[tuple[Path, ...]], arg(metavar="[FOLDER ...]")] = ()
    """Folder of a ledger.json, or folders of runs; report if not given."""
    out: OutFile = None
    """The page to write; index.html in the first folder if not given."""
    readme: File = None
    """Fill the table between the ledger marks of this Markdown file instead."""
    pages: Annotated[Path | None, optional("FOLDER")] = None
    """Write a Markdown page for each claim there instead."""
    figures: Annotated[Path | None, optional("FOLDER")] = None
    """Draw the ledger's figures here once more, for papers, instead."""
    format: Annotated[Literal["png", "svg", "pdf"], arg(metavar="png|svg|pdf")] = "png"
    """Kind of these figures."""

    def run(self) -> int:
        folder, *others = self.folders or [Path("report")]
        page = self.out or folder / PAGE
        from_ledger = self.readme or self.pages or self.figures
        with mistakes():
            if others or (folder / "config.json").exists():
                if from_ledger:
                    raise UserError(
                        "--readme, --pages and --figures are made from a ledger, not from runs."
                    )
                from bayesattn.report.runs import render_runs

                with writing(str(page), "make room, or choose another folder"):
                    write_text(page, render_runs([folder, *others]))
                print(page)
                return 0
            if self.readme:
                fill(self.readme, Ledger.load(folder / NAME), folder)
                print(self.readme)
            if self.pages:
                write_pages(Ledger.load(folder / NAME), self.pages)
                print(self.pages)
            if self.figures:
                for path in redraw(folder, self.figures, self.format):
                    print(path)
            if self.out or not from_ledger:
                print(write_page(folder, page))
        return 0


@dataclass(frozen=True, kw_only=True)
class DrawPrior:
    """Draw a prior over distance, one line per head."""

    name: Annotated[Positional[str], arg(metavar="|".join(PRIORS))]
    """Which prior."""
    out: OutFile = None
    """Image to write, its kind told by the ending; NAME.png if not given."""
    heads: int = 8
    """Number of heads."""
    length: int = 128
    """Number of distances."""

    def run(self) -> int:
        from matplotlib.figure import Figure

        path = self.out or Path(f"{self.name}.png")
        with mistakes():
            check_format(path)
            figure = Figure(figsize=(7, 4), layout="constrained")
            make_prior(self.name, self.heads).draw(self.length, figure.add_subplot())
            with writing(str(path), "make room, or choose another folder"):
                figure.savefig(path, dpi=150)
        print(path)
        return 0


def redraw(folder: Path, target: Path, ending: str) -> Iterator[Path]:
    """The figures of the ledger in `folder`, drawn from its measured seeds into `target`."""
    target.mkdir(parents=True, exist_ok=True)
    for name, record in Ledger.load(folder / NAME).records.items():
        if not record.figures:
            continue
        study = find_study(name)
        there = seeds_in(study, record.tier, folder, record.seeds)
        if not there:
            print(
                f"The seeds of {name} are not in {folder}, or the claim was registered anew, so "
                "that its figures cannot be drawn again; as SVG they lie beside the ledger. To "
                f"measure it: {record.command}",
                file=sys.stderr,
            )
            continue
        found = study.read({seed: seed_numbers(own) for seed, own in there.items()})
        for _, path in draw_figures(study, record.tier, found, target, ending):
            yield path
