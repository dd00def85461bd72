"""metrics.jsonl: a line of numbers for each logged step, each line with a checksum.

The file is a record for readers and decides nothing: damaged lines are skipped and counted.
"""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bayesattn import files


class Metrics:
    """The lines of a file, read as a stream; damaged lines are skipped and counted.

    At least `logged` lines were written. A line without its end is still being written and does not
    count.
    """

    def __init__(self, path: Path, logged: int = 0) -> None:
        self.path, self.logged = path, logged
        self.damaged = self.good = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self.damaged = self.good = 0
        last = -1
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            for text in file:
                if not text.endswith(b"\n"):
                    return
                line = _line(text)
                if line is None or line["step"] <= last:  # damaged or repeated
                    self.damaged += 1
                    continue
                last = line["step"]
                self.good += 1
                yield line

    @property
    def problem(self) -> str | None:
        """The damage of the file, after all lines were read; None if there is none."""
        lost = max(self.damaged, self.logged - self.good)
        if not lost:
            return None
        return f"{lost:,} of {self.good + lost:,} lines of {self.path.name} are damaged or lost"


def written(line: Mapping[str, Any]) -> str:
    """A line for the file."""
    return files.with_checksum(json.dumps(line, allow_nan=False)) + "\n"


def _line(text: bytes) -> dict[str, Any] | None:
    """The content of a line; None if it is damaged."""
    try:
        line = files.parse(text.decode("utf-8"))
    except ValueError:
        return None
    if not isinstance(line, dict) or not isinstance(line.get("step"), int):
        return None
    numbers = all(type(one) in (int, float) and math.isfinite(one) for one in line.values())
    return line if numbers else None
