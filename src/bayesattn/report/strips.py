"""Numbers as marks on an axis: a dot with its interval, and each null as a mark on the same axis.

All findings of one name share their axis, so that layers can be compared down a table.
"""

import math
from collections.abc import Iterator, Sequence

from markupsafe import Markup, escape

from bayesattn.probes.examination import MeasuredRow, Row, number, said
from bayesattn.probes.measured import Measured
from bayesattn.probes.states import CONTROL

WIDTH, HEIGHT, EDGE = 220, 22, 6
DIAMOND = "M{x} 5 l6 6 l-6 6 l-6 -6 z"
TICK = "M{x} 3 v16"
UNTRAINED = (CONTROL, "untrained")
"""Nulls that are the same network without training: they have a mark of their own."""


def strips(rows: Sequence[Row]) -> list[Markup]:
    """A drawing for each row; an empty one for rows that are words."""
    ends: dict[str, tuple[float, float]] = {}
    for row in rows:
        known = [x for x in _numbers(row) if math.isfinite(x)]
        low, high = ends.get(row.get("what", ""), (0.0, 0.0))
        ends[row.get("what", "")] = (min([low, *known]), max([high, *known]))
    return [
        _strip(row["what"], row.measured, *ends[row["what"]])
        if isinstance(row, MeasuredRow)
        else Markup("")
        for row in rows
    ]


def _numbers(row: Row) -> Iterator[float]:
    if isinstance(row, MeasuredRow):
        yield row.measured.value
        yield from row.measured.interval or ()
        yield from row.measured.nulls.values()


def _strip(what: str, measured: Measured, low: float, high: float) -> Markup:
    if not math.isfinite(measured.value) or low == high:
        return Markup("")

    def at(value: float) -> str:
        share = (value - low) / (high - low)
        return f"{EDGE + min(1.0, max(0.0, share)) * (WIDTH - 2 * EDGE):.1f}"

    words = [f"{what}: {number(measured.value)}"]
    drawn = [f'<path class="axis" d="M{EDGE} 11 H{WIDTH - EDGE}"/>']
    if low < 0 < high:
        drawn.append(f'<path class="axis" d="M{at(0)} 7 v8"/>')
    for name, value in measured.nulls.items():
        if math.isfinite(value):
            mark = DIAMOND if name in UNTRAINED else TICK
            kind = "fresh" if name in UNTRAINED else "null"
            drawn.append(
                f'<path class="{kind}" d="{mark.format(x=at(value))}">'
                f"<title>{escape(said(name))} {number(value)}</title></path>"
            )
            words.append(f"{said(name)} {number(value)}")
    if measured.interval and all(map(math.isfinite, measured.interval)):
        start, end = map(at, measured.interval)
        drawn.append(f'<path class="spread" d="M{start} 11 H{end}"/>')
        words.insert(1, f"95% {number(measured.interval[0])} to {number(measured.interval[1])}")
    drawn.append(f'<circle class="found" cx="{at(measured.value)}" cy="11" r="4.5"/>')
    return Markup(
        f'<svg class="strip" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img" aria-label="{escape("; ".join(words))}">{"".join(drawn)}</svg>'
    )
