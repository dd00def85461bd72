"""Figures of claims: panels side by side, a line or a row of points for each variant."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from bayesattn import drawing
from bayesattn.probes.measured import Measured

M = TypeVar("M")


def panels(
    count: int = 1, size: tuple[float, float] = (8, 3.4), **options: Any
) -> tuple[Any, list[Any]]:
    """A figure and its axes, from left to right; `options` are those of `Figure.subplots`."""
    figure, (axes,) = drawing.panels(*size, columns=count, **options)
    return figure, list(axes)


def mean_curve(found: Mapping[int, M], curve: Callable[[M], Sequence[float]]) -> list[float]:
    return np.mean([curve(one) for one in found.values()], 0).tolist()


def draw_curves(axes: Any, curves: Mapping[str, Sequence[float]], **style: Any) -> None:
    """A labelled line for each name, over the steps from 1 on."""
    for name, values in curves.items():
        axes.plot(range(1, len(values) + 1), values, label=name, **style)
    axes.legend(fontsize=8)


def draw_rows(
    axes: Any, rows: Mapping[str, Sequence[float]], *, offset: float = 0.0, **style: Any
) -> None:
    """A row for each name, with a point for each seed; `offset` moves the points up."""
    for row, values in enumerate(rows.values()):
        options = {"marker": "o", "color": f"C{row}", "alpha": 0.7, **style}
        axes.plot(values, [row + offset] * len(values), ls="", **options)
    axes.set_yticks(range(len(rows)), list(rows))


def draw_beside(
    axes: Any, rows: Mapping[str, Sequence[float]], nulls: Mapping[str, Sequence[float]]
) -> None:
    """A row for each name: circles as measured, squares the null."""
    draw_rows(axes, nulls, offset=-0.1, marker="s", color="C1")
    draw_rows(axes, rows, offset=0.1, color="C0")


def draw_measured(axes: Any, rows: Mapping[str, Sequence[Measured]], null: str) -> None:
    """The same beside one of the nulls of each measurement."""
    values = {name: [one.value for one in own] for name, own in rows.items()}
    nulls = {name: [one.nulls[null] for one in own] for name, own in rows.items()}
    draw_beside(axes, values, nulls)
