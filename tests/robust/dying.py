"""A program with workers that compute, which a test then ends in one way or another.

python -m tests.robust.dying FOLDER signal|return engine|demo

Of the workers of an engine one listens to the system no more and has only the pipe, the other never
returns to Python and has only the system.
"""

import ctypes
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from bayesattn.commands import demo
from bayesattn.commands.main import main as command
from bayesattn.commands.main import stopping
from bayesattn.ledger.engines import Processes, run_jobs
from bayesattn.ledger.following import _PDEATHSIG

LONG = "tunnel train bijection --steps 1000000 --log-every 1 --out RUN"
LINUX = sys.platform == "linux"


@dataclass(frozen=True)
class Busy:
    """Computes without looking left or right."""

    folder: Path
    name: str
    needs: frozenset[str] = frozenset()

    def run(self):
        (self.folder / self.name).touch()
        if LINUX and self.name == "one":
            ctypes.CDLL(None).prctl(_PDEATHSIG, 0)
        if LINUX and self.name == "two":
            ctypes.PyDLL(None).sleep(60)  # and keeps the lock of the interpreter
        until = time.monotonic() + 60
        while time.monotonic() < until:
            sum(range(1000))


def of_an_engine(folder, way):
    engine = Processes(2)
    jobs = {name: Busy(folder, name) for name in ("one", "two")}
    try:
        with stopping():
            for _ in run_jobs(jobs, engine):
                if way == "return" and all((folder / name).exists() for name in jobs):
                    return
    finally:
        engine.close()


def of_a_demo(folder):
    """Of a training that goes on for ever."""
    demo.PARTS = {"train": demo.Part("train", LONG, trains=1_000_000)}
    demo.Showing.write_page = lambda self, running=False: None
    sys.exit(command(["demo", "--no-open", "--out", str(folder)]))


def main(folder, way, who):
    # whoever starts tests in the background has these ignored, and children inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    of_a_demo(folder) if who == "demo" else of_an_engine(folder, way)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
