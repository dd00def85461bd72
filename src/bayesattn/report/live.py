"""What a demo has found so far: numbers beside those of a recorded demo, curves, beliefs."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from bayesattn.files import parse, read_json
from bayesattn.ledger import words
from bayesattn.ledger.study import Exhibit
from bayesattn.probes.attention import REDUCTION_EVENNESS, REDUCTION_WITHOUT_SINK
from bayesattn.probes.examination import said

RECORDED = Path(__file__).with_name("demo.json")
"""Rows of one demo, with which others are compared: `bayesattn demo --json` wrote them here."""
DEPTH = {
    REDUCTION_EVENNESS: "share of the entropy of attention that is lost from first to last layer",
    REDUCTION_WITHOUT_SINK: "the same without the first token",
}
"""Measurements of the probe that are shown, in plain words."""
BARS = "▁▂▃▄▅▆▇█"


class Row(NamedTuple):
    """One number of a demo."""

    what: str
    value: float
    low: float
    high: float
    unit: str
    null: str
    """What it must beat, and what that gives."""

    @property
    def said(self) -> str:
        if self.unit.startswith("of "):
            return f"{self.value:g} {self.unit}"
        span = f" [{words.number(self.low)}, {words.number(self.high)}]"
        return f"{words.number(self.value)} {self.unit}{'' if self.low == self.high else span}"

    def share(self) -> tuple[float, float, float]:
        """Value and interval; of counts, as shares."""
        whole = float(self.unit[3:]) if self.unit.startswith("of ") else 1.0
        return self.value / whole, self.low, self.high


def read_answer(path: Path) -> Any:
    """What a part has answered; None while it has not."""
    with suppress(OSError, ValueError):
        return read_json(path)
    return None


def needles(data: Mapping[str, Any], name: str) -> Iterator[Row]:
    for own in data["lengths"]:
        what = f"{name}: needles found at {own['requested'][:-1]}× the training length"
        yield Row(
            what,
            own["correct"],
            own["low"],
            own["high"],
            f"of {own['total']}",
            "a guess finds none",
        )


def fidelity(data: Mapping[str, Any], name: str) -> Iterator[Row]:
    model, *others = data["rows"]
    # exact Bayes is no null, and predictors of entropy only have no divergence
    nulls = [own for own in others if own["predictor"] != "bayes" and own["kl"] is not None]
    trivial = min(nulls, key=lambda own: own["kl"])
    null = f"{trivial['predictor']}: {words.number(trivial['kl'])} bits"
    yield Row(
        f"{name}: KL(Bayes ‖ model)", model["kl"], model["kl_low"], model["kl_high"], "bits", null
    )


def tests(data: Mapping[str, Any], name: str) -> Iterator[Row]:
    """Of a language model: how much of the evidence it misses, by task."""
    for own in data["tasks"]:
        measured = own.get("measured", {}).get("missed")
        if measured:
            low, high = measured.get("interval") or (measured["value"], measured["value"])
            what = f"{name}, {own['task']}: share of the evidence that it misses"
            yield Row(what, measured["value"], low, high, "", "no inference: 1")


def probed(data: Mapping[str, Any], name: str) -> Iterator[Row]:
    """Of a language model: how attention changes with depth."""
    for own in data["models"][0]["measurements"]:
        if own["what"] in DEPTH and own["layer"] is None:
            value = own["measured"]
            low, high = own["interval"] or (value, value)
            nulls = ", ".join(f"{said(null)} {words.number(x)}" for null, x in own["null"].items())
            yield Row(f"{name}: {DEPTH[own['what']]}", value, low, high, "", nulls)


class Live(NamedTuple):
    """What a demo shows."""

    rows: Sequence[Row]
    exhibits: Sequence[Exhibit]
    running: bool = False


READERS = {"needles": needles, "fidelity": fidelity, "tests": tests, "probe": probed}


def recorded() -> dict[str, Row]:
    found = read_answer(RECORDED) or []
    return {own["what"]: Row(**own) for own in found}


def compare(row: Row, record: Mapping[str, Row]) -> str:
    """Whether the intervals of a number and of the recorded one overlap; empty if there is none."""
    other = record.get(row.what)
    if other is None:
        return ""
    (_, low, high), (_, low_other, high_other) = row.share(), other.share()
    same = low <= high_other and low_other <= high
    near = math.isclose(row.share()[0], other.share()[0], rel_tol=0.5, abs_tol=0.01)
    return (
        f"{other.said}: {'agrees with the record' if same or near else 'differs from the record'}"
    )


def curve(run: Path, name: str) -> list[tuple[int, float]]:
    """What a training has logged of one number."""
    found: list[tuple[int, float]] = []
    with suppress(OSError):
        for text in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
            with suppress(ValueError):  # being written just now
                line = parse(text)
                if name in line:
                    found.append((line["step"], line[name]))
    return found


def sparkline(values: Sequence[float], width: int = 24) -> str:
    """The last values as bars.

    >>> sparkline([0.0, 1.0, 2.0])
    '▁▅█'
    """
    kept = list(values)[-width:]
    low, span = min(kept, default=0.0), (max(kept, default=0.0) - min(kept, default=0.0)) or 1.0
    return "".join(BARS[round((len(BARS) - 1) * (value - low) / span)] for value in kept)


def training_exhibit(runs: Mapping[str, Path]) -> Exhibit | None:
    """Losses of several trainings on one pair of axes."""
    series: list[dict[str, Any]] = []
    for name, run in runs.items():
        points = curve(run, "loss")
        if len(points) > 1:
            steps, values = zip(*points, strict=True)
            series.append({"name": name, "x": list(steps), "y": list(values)})
    if not series:
        return None
    data = {
        "series": series,
        "xLabel": "step",
        "yLabel": "training loss, nats a token",
        "logX": False,
    }
    return Exhibit(
        kind="curves",
        title=_ends(series),
        caption="Loss of the two trainings of this demo, as logged: text and needle prompts of 128 "
        "tokens, the same data, steps and seed.",
        data=data,
    )


def _ends(series: Sequence[Mapping[str, Any]]) -> str:
    """Both losses, as a title."""
    losses = ", ".join(f"{own['name']} {own['y'][-1]:.2f}" for own in series)
    return f"Training loss so far: {losses}; what differs is how far they look"


def needle_exhibit(answers: Mapping[str, Any]) -> Exhibit | None:
    """Share of needles found by length, of several models, on one pair of axes."""
    series: list[dict[str, Any]] = []
    for name, data in answers.items():
        own = data["lengths"]
        columns = {"x": "length", "y": "accuracy", "low": "low", "high": "high"}
        series.append({"name": name} | {k: [one[v] for one in own] for k, v in columns.items()})
    if not series:
        return None
    best = max(series, key=lambda own: (own["y"][-1] > 0, own["x"][-1]))
    title = (
        f"{best['name'].capitalize()}: {best['y'][-1]:.0%} of needles found among "
        f"{best['x'][-1]:,} tokens"
    )
    data = {
        "series": series,
        "xLabel": "tokens of the prompt",
        "yLabel": "needles found",
        "logX": True,
    }
    return Exhibit(
        kind="curves",
        title=title,
        caption="Share of needles found by this demo's two models, with 95 % Wilson intervals; a "
        "guess finds one in 100,000. Both were trained at 128 tokens.",
        data=data | {"range": [0, 1]},
    )
