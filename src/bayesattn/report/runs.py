"""Any runs as one page: what they were asked to do, how they learnt, what they believe."""

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bayesattn.claims.exhibits import belief_exhibit, manifold_exhibit
from bayesattn.errors import RunError
from bayesattn.ledger.study import Exhibit
from bayesattn.models.open import open_tunnel
from bayesattn.report import html
from bayesattn.runs import Metrics, Run

CURVES = ("mae", "kl", "loss")
"""What is drawn over the steps, where it was logged."""
ATTENDING = "transformer"
POINTS = 1000
"""Of a curve, at least, if so many were logged: more cannot be seen."""


class Curve:
    """Every so many of the points of a curve, and the last one; in bounded memory."""

    def __init__(self) -> None:
        self.every, self.count = 1, 0
        self.points: list[tuple[int, float]] = []
        self.last: tuple[int, float] | None = None

    def add(self, step: int, value: float) -> None:
        self.last = (step, value)
        if self.count % self.every == 0:
            self.points.append(self.last)
        self.count += 1
        if len(self.points) == 2 * POINTS:
            self.points, self.every = self.points[::2], 2 * self.every

    def shown(self) -> list[tuple[int, float]]:
        """The points, in order."""
        end = [self.last] if self.last and self.last != self.points[-1] else []
        return [*self.points, *end]


def render_runs(folders: Sequence[Path]) -> str:
    """One section per run; what is damaged is said in it."""
    sections = [_section(number, folder) for number, folder in enumerate(folders)]
    return html.render("runs.html", sections=sections)


def _section(number: int, folder: Path) -> dict[str, Any]:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        run = Run.open(folder)
        shown: list[dict[str, str]] = []
        notes: list[str] = []
        try:
            for at, exhibit in enumerate(exhibits(run)):
                shown.append(html.embedded(f"run-{number}-{at}", exhibit, exhibit.data))
        except RunError as error:
            notes.append(str(error))
        section = {"name": folder.name, "settings": _flat(run.config), "finished": run.finished}
        section |= {"environment": run.environment, "exhibits": shown}
    notes += [str(one.message) for one in said if one.category is UserWarning]
    return section | {"notes": list(dict.fromkeys(notes))}


def exhibits(run: Run) -> Iterator[Exhibit]:
    """How it learnt; for a transformer on a tunnel, also its beliefs and its states."""
    lines = run.lines()
    curves = _curves(lines)
    if lines.problem:
        warnings.warn(f"{lines.problem} and left out of the curves.", stacklevel=2)
    for name, curve in curves.items():
        points = curve.shown()
        if len(points) > 1:
            data = {
                "x": [step for step, _ in points],
                "series": [{"name": name, "y": [value for _, value in points]}],
                "xLabel": "step",
                "yLabel": name,
                "logX": False,
            }
            every = "" if curve.every == 1 else f" Of {curve.every:,} values one is shown."
            caption = f"As logged in training.{every}"
            yield Exhibit(kind="curves", title=f"{name} by step", caption=caption, data=data)
    if run.config.get("architecture", {}).get("name") != ATTENDING or not run.steps():
        return
    model, tunnel = open_tunnel(run)
    caption = "Held-out sequences; the orange bars are the exact posterior."
    yield belief_exhibit(model, tunnel, title="beliefs, step by step", caption=caption)
    caption = "The residual stream after the last layer on its first three components."
    yield manifold_exhibit(model, tunnel, title="states of the last layer", caption=caption)


def _curves(lines: Metrics) -> dict[str, Curve]:
    curves = {name: Curve() for name in CURVES}
    for line in lines:
        for name, curve in curves.items():
            if name in line:
                curve.add(line["step"], line[name])
    return curves


def _flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{prefix}{name}.")
        elif value is not None:
            found[f"{prefix}{name}"] = value
    return found
