"""A program with workers that compute, which a test then ends in one way or another.

python -m tests.robust.dying FOLDER signal|return
"""

import sys
import time
from dataclasses import dataclass
from pathlib import Path

from bayesattn.commands.main import stopping
from bayesattn.ledger.engines import Processes, run_jobs


@dataclass(frozen=True)
class Busy:
    """Computes without looking left or right."""

    folder: Path
    name: str
    needs: frozenset[str] = frozenset()

    def run(self):
        (self.folder / self.name).touch()
        until = time.monotonic() + 60
        while time.monotonic() < until:
            sum(range(1000))


def main(folder, way):
    engine = Processes(2)
    jobs = {name: Busy(folder, name) for name in ("one", "two")}
    try:
        with stopping():
            for _ in run_jobs(jobs, engine):
                if way == "return" and all((folder / name).exists() for name in jobs):
                    return
    finally:
        engine.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
