"""`bayesattn lm priors`."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from bayesattn.commands.options import JsonTarget, ModelName
from bayesattn.console import mistakes, show_rows, write_json
from bayesattn.drawing import Picture, save_picture
from bayesattn.evals.priors import REACH, HeadPrior, Priors, factors_on_passkey, measure_priors
from bayesattn.models.open import LanguageModel, find, open_language
from bayesattn.runs import Run

FAR = 1e7
"""Tokens that no text has: as good as infinite, and written short."""


@dataclass(frozen=True, kw_only=True)
class LanguagePriors:
    """Show what each head's prior has learnt: shape, class and reach."""

    source: ModelName
    """Folder of a run, zoo:NAME, folder of a Hugging Face model of ours, or a hub name."""
    step: int | None = None
    """Checkpoint of the run; the last one if not given."""
    figures: Annotated[Path | None, arg(metavar="FOLDER")] = None
    """Draw the priors, how they moved, and the factors of attention on a passkey prompt there."""
    head: Annotated[str | None, arg(metavar="LAYER.HEAD")] = None
    """Head whose factors are drawn; the one that looks most at the passkey if not given."""
    json: JsonTarget = None
    """Write everything as JSON to this file ("-": standard output, no table)."""

    def run(self) -> int:
        """Measure, print, draw."""
        with mistakes():
            run = run_of(self.source)
            model = open_language(self.source, self.step)
            priors = measure_priors(model, run)
            chosen = None if self.head is None else parse_head(self.head, priors)
            written = self._draw(model, priors, chosen)
        if self.json:
            write_json(priors.to_json(), self.json)
        if self.json != "-":
            print(title(priors))
            show_rows([row(head) for head in priors.heads])
            for path in written:
                print(path)
        return 0

    def _draw(
        self, model: LanguageModel, priors: Priors, chosen: tuple[int, int] | None
    ) -> list[Path]:
        if self.figures is None:
            return []
        from bayesattn.figures import priors as drawing

        factors = factors_on_passkey(model)
        pictures: list[Picture] = [drawing.draw_curves(priors)]
        if priors.counts():
            pictures.append(drawing.draw_shapes(priors))
        if priors.movement is not None:
            pictures.append(drawing.draw_movement(priors))
        pictures.append(drawing.draw_factors(factors, chosen or factors.strongest(), model.name))
        paths = [self.figures / f"{picture.name}.svg" for picture in pictures]
        for picture, path in zip(pictures, paths, strict=True):
            save_picture(picture, path)
        return paths


def run_of(source: str) -> Run | None:
    """The run of that name; None if it is something else."""
    found = find(source)
    return Run.open(found.location) if found.run else None


def parse_head(text: str, priors: Priors) -> tuple[int, int]:
    """Layer and head of "LAYER.HEAD"."""
    known = {f"{head.layer}.{head.head}": (head.layer, head.head) for head in priors.heads}
    if text not in known:
        last = priors.heads[-1]
        raise ValueError(
            f"There is no head {text!r}: heads are LAYER.HEAD, such as {last.layer}.{last.head}, "
            "the last one."
        )
    return known[text]


def title(priors: Priors) -> str:
    """What the table is about."""
    counts = ", ".join(f"{count} {kind}" for kind, count in priors.counts().items())
    return (
        f"{priors.model}: {priors.prior} priors of {len(priors.heads)} heads"
        f"{f' ({counts})' if counts else ''}; reach is where the prior falls below {REACH:g} of "
        f"its largest value, for a query that sees {priors.length:,} keys"
    )


def row(head: HeadPrior) -> dict[str, str]:
    """One line of the table."""
    return {
        "layer": str(head.layer),
        "head": str(head.head),
        "theta_alpha": _number(head.theta_alpha),
        "theta_beta": _number(head.theta_beta),
        "mu": _number(head.mu),
        "class": head.kind or "",
        "reach": _distance(head.reach),
        "s of SSMax": _number(head.temperature),
    }


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _distance(reach: float) -> str:
    if math.isinf(reach):
        return "∞"
    return f"{reach:,.0f}" if reach < FAR else f"{reach:.0e}"
