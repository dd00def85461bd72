"""Jobs for the tests: they sleep, fail, die, and leave traces."""

import json
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Errand:
    """Notes when it begins and ends."""

    folder: Path
    name: str
    seconds: float = 0.0
    needs: frozenset[str] = frozenset()
    fails: bool = False
    dies: int = 0
    """So many times the process is killed in the middle."""
    waits_for: int = 0
    """Goes on until so many errands of the folder have begun, however slow the machine is."""

    def done(self):
        return (self.folder / f"{self.name}.ended").exists()

    def run(self):
        began = list(self.folder.glob(f"{self.name}.began*"))
        (self.folder / f"{self.name}.began-{len(began)}").write_text(json.dumps(time.time()))
        if len(began) < self.dies:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fails:
            raise RuntimeError("no luck")
        while len(list(self.folder.glob("*.began*"))) < self.waits_for:
            time.sleep(0.01)
        time.sleep(self.seconds)
        (self.folder / f"{self.name}.ended").write_text(json.dumps(time.time()))

    def between(self):
        (began,) = self.folder.glob(f"{self.name}.began*")
        return json.loads(began.read_text()), json.loads(
            (self.folder / f"{self.name}.ended").read_text()
        )


def go(errand, runs):
    """Do an errand, without what trainings need."""
    errand.run()
