"""Any runs as one page: what they were asked to do, how they learnt, what they believe."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bayesattn.claims.exhibits import belief_exhibit, manifold_exhibit
from bayesattn.ledger.study import Exhibit
from bayesattn.models.open import open_tunnel
from bayesattn.report import html
from bayesattn.training import Run

CURVES = ("mae", "kl", "loss")
"""What is drawn over the steps, where it was logged."""
ATTENDING = "transformer"


def render_runs(folders: Sequence[Path]) -> str:
    """One section per run."""
    sections: list[dict[str, Any]] = []
    for number, folder in enumerate(folders):
        run = Run.open(folder)
        sections.append(
            {
                "name": folder.name,
                "settings": _flat(run.config),
                "finished": run.finished,
                "environment": run.environment,
                "exhibits": [
                    html.embedded(f"run-{number}-{at}", exhibit, exhibit.data)
                    for at, exhibit in enumerate(exhibits(run))
                ],
            }
        )
    return html.render("runs.html", sections=sections)


def exhibits(run: Run) -> Iterator[Exhibit]:
    """How it learnt; for a transformer on a tunnel, also its beliefs and its states."""
    metrics = run.metrics()
    for name in CURVES:
        lines = [line for line in metrics if name in line]
        if len(lines) > 1:
            data = {
                "x": [line["step"] for line in lines],
                "series": [{"name": name, "y": [line[name] for line in lines]}],
                "xLabel": "step",
                "yLabel": name,
                "logX": False,
            }
            caption = "As logged in training."
            yield Exhibit(kind="curves", title=f"{name} by step", caption=caption, data=data)
    if run.config.get("architecture", {}).get("name") != ATTENDING or not run.steps():
        return
    model, tunnel = open_tunnel(run)
    caption = "Held-out sequences; the orange bars are the exact posterior."
    yield belief_exhibit(model, tunnel, title="beliefs, step by step", caption=caption)
    caption = "The residual stream after the last layer on its first three components."
    yield manifold_exhibit(model, tunnel, title="states of the last layer", caption=caption)


def _flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{prefix}{name}.")
        elif value is not None:
            found[f"{prefix}{name}"] = value
    return found
