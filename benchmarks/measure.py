"""Timing that survives a shared machine, and how it prints."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median, quantiles
from typing import Any, TypeVar

import torch

from bayesattn.console import show_rows, write_json

Call = Callable[[], Any]
Row = TypeVar("Row")

_SLOW, _RATIO, _LONG = 0.1, 4.0, 5.0


@dataclass(frozen=True)
class Ratio:
    """Time relative to a reference measured in the same rounds."""

    ratio: float
    """Best time over best time of the reference."""
    median: float
    """Median time over median time of the reference."""
    low: float
    """Lower quartile of the ratios round by round."""
    high: float
    """Upper quartile of the ratios round by round."""
    rounds: int
    seconds: float
    """Best time of one call."""


def interleave(
    calls: Mapping[str, Call], reference: str, seconds: float, least: int = 3, most: int = 200
) -> dict[str, Ratio]:
    """Run all calls in turn, `least` rounds and then more until `seconds` are spent.

    Interleaving lets a slow moment of the machine hit every call; the best of many rounds is the
    time without such moments.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    start = time.perf_counter()
    for name, call in calls.items():
        begin = time.perf_counter()
        call()
        took = time.perf_counter() - begin
        if times[reference] or (name == reference and took > _LONG):
            times[name].append(took)  # what takes so long needs no warming up
    while len(times[reference]) < least or (
        time.perf_counter() - start < seconds and len(times[reference]) < most
    ):
        done = len(times[reference])
        for name, call in calls.items():
            # what is far slower needs no more rounds to tell, and would eat the others' time
            if done >= least and min(times[name]) > max(_SLOW, _RATIO * min(times[reference])):
                continue
            begin = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - begin)
    best = min(times[reference])
    ratios: dict[str, Ratio] = {}
    for name, own in times.items():
        rounds = [a / b for a, b in zip(own, times[reference], strict=False)]
        low, _, high = quantiles(rounds, n=4) if len(rounds) > 1 else rounds * 3
        middle = median(own) / median(times[reference])
        ratios[name] = Ratio(min(own) / best, middle, low, high, len(rounds), min(own))
    return ratios


def report(
    rows: Sequence[Row], printed: Callable[[Row], dict[str, str]], terms: str, json: str | None
) -> int:
    """Print a table, and write JSON to a file if one is named ("-": only JSON, no table).

    Args:
        rows: dataclasses, one for each measurement.
        printed: columns of a row.
        terms: what holds for all rows, to stand above the table.
        json: the file.
    """
    threads = torch.get_num_threads()
    if json:
        fields: list[Any] = [*rows]
        write_json([asdict(row) | {"threads": threads} for row in fields], json)
    if json != "-":
        print(f"{threads} threads{terms}")
        show_rows([printed(row) for row in rows])
    return 0
