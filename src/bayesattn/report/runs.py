"""Any runs as one page: what they were asked to do, how they learnt, what they believe."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bayesattn.claims.exhibits import belief_exhibit, manifold_exhibit
from bayesattn.errors import RunError
from bayesattn.ledger.study import Exhibit
from bayesattn.models.open import open_tunnel
from bayesattn.report import html
from bayesattn.runs import Metrics, Run

CURVES = {
    "mae": "mean |difference of entropies|, bits",
    "kl": "KL(Bayes ‖ model), bits",
    "heldout": "loss of held-out text, nats a token",
    "needles": "share of needles found",
    "loss": "training loss, nats",
}
"""What is drawn over the steps, where it was logged, and its axis."""
ATTENDING = "transformer"
NAMED = 4
"""Runs whose last values stand in a title."""
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
    """How all of them learnt, on the same axes; then a section for each run.

    What is damaged is said in its section.
    """
    runs = {name: Run.open(folder) for name, folder in _names(folders).items()}
    _require_one_task(runs)
    notes: dict[str, list[str]] = {}
    learnt: dict[str, dict[str, Curve]] = {}
    for name, run in runs.items():
        lines = run.lines()
        learnt[name] = _curves(lines)
        problem = lines.problem
        notes[name] = [f"{problem} and left out of the curves."] if problem else []
    together = [
        html.embedded(f"together-{at}", exhibit, exhibit.data)
        for at, exhibit in enumerate(curve_exhibits(learnt))
    ]
    sections = [
        _section(number, name, run, notes[name]) for number, (name, run) in enumerate(runs.items())
    ]
    return html.render("runs.html", together=together, sections=sections)


def _names(folders: Sequence[Path]) -> dict[str, Path]:
    """The last part of each path, or all of it where that does not tell them apart."""
    last = [folder.name for folder in folders]
    return {
        (own.name if last.count(own.name) == 1 and own.name else str(own)): own for own in folders
    }


def _require_one_task(runs: Mapping[str, Run]) -> None:
    """Losses of different tasks do not belong on the same axes."""
    tasks = {name: _task(run.config) for name, run in runs.items()}
    first, *others = tasks.items()
    for name, task in others:
        if task != first[1]:
            raise RunError(
                f"{first[0]} is {first[1]}, {name} is {task}: make a page of each, since their "
                "numbers do not compare."
            )


def _task(config: Mapping[str, Any]) -> str:
    tunnel = config.get("tunnel")
    return f"of the tunnel {tunnel.get('name')}" if tunnel else "a language model"


def _section(number: int, name: str, run: Run, notes: list[str]) -> dict[str, Any]:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        shown: list[dict[str, str]] = []
        try:
            for at, exhibit in enumerate(exhibits(run)):
                shown.append(html.embedded(f"run-{number}-{at}", exhibit, exhibit.data))
        except RunError as error:
            notes = [*notes, str(error)]
        section = {"name": name, "settings": _flat(run.config), "finished": run.finished}
        section |= {"environment": run.environment, "exhibits": shown}
    notes = notes + [str(one.message) for one in said if one.category is UserWarning]
    return section | {"notes": list(dict.fromkeys(notes))}


def curve_exhibits(learnt: Mapping[str, Mapping[str, Curve]]) -> Iterator[Exhibit]:
    """For each number that was logged, a line for each run; `learnt` is by run and number."""
    for number, unit in CURVES.items():
        series: list[dict[str, Any]] = []
        thinned = False
        for run, curves in learnt.items():
            points = curves[number].shown()
            thinned = thinned or curves[number].every > 1
            if len(points) > 1:
                steps, values = zip(*points, strict=True)
                series.append({"name": run, "x": list(steps), "y": list(values)})
        if not series:
            continue
        ends = ", ".join(f"{own['name']} {own['y'][-1]:.3g}" for own in series[:NAMED])
        data = {"series": series, "xLabel": "step", "yLabel": unit, "logX": False}
        every = " Of a long curve only some points are drawn." if thinned else ""
        yield Exhibit(
            kind="curves",
            title=f"{number} at the end: {ends}{', …' if len(series) > NAMED else ''}",
            caption=f"As logged in training.{every}",
            data=data,
        )


def exhibits(run: Run) -> Iterator[Exhibit]:
    """Of a transformer on a tunnel its beliefs and its states."""
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
