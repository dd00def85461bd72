"""metrics.jsonl: a line of numbers for each step that was logged, each line with a checksum.

It is there to be looked at and decides nothing: damaged lines are left out, and counted.
"""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bayesattn import files


class Metrics:
    """The lines of a file, read as a stream; `damaged` of them were left out when it is through.

    A line that is being written, without its end, is none yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
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
                if line is None or line["step"] <= last:  # damaged, or there twice
                    self.damaged += 1
                    continue
                last = line["step"]
                self.good += 1
                yield line

    def missing(self, logged: int) -> str | None:
        """What is wrong with the file, of which `logged` lines were written; None if all is well.

        To be asked once all was read.
        """
        lost = max(self.damaged, logged - self.good)
        if not lost:
            return None
        return f"{lost} of {max(logged, self.good + lost):,} lines of {self.path.name} are damaged"


def written(line: Mapping[str, Any]) -> str:
    """A line for the file."""
    return files.with_checksum(json.dumps(line, allow_nan=False)) + "\n"


def _line(text: bytes) -> dict[str, Any] | None:
    """What a line holds; None if that is not what was written."""
    try:
        line = files.parse(text.decode("utf-8"))
    except ValueError:
        return None
    if not isinstance(line, dict) or not isinstance(line.get("step"), int):
        return None
    numbers = all(type(one) in (int, float) and math.isfinite(one) for one in line.values())
    return line if numbers else None
