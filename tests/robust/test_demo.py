"""The demo, killed with signal 9 at random moments and started again: it ends, nothing twice."""

import json
import random
import signal
import time

import pytest

from tests.robust.common import TORTURE, start

KILLS = 10 if TORTURE else 2
STEPS = {"far": 40, "rope": 40, "tunnel": 60}
TINY = "--layers 1 --width 16 --heads 2 --batch-size 4 --log-every 1 --threads 1 --out RUN"
TEXT = f"lm train tiny --size nano --steps 40 --evaluate-every 20 {TINY}"
SMALL = f"""
import sys
from bayesattn.commands import demo
from bayesattn.commands.main import main
short = {{
    "far": ("{TEXT}", 40),
    "rope": ("{TEXT} --encoding rope --prior uniform --no-ssmax", 40),
    "tunnel": ("tunnel train bijection --alphabet 4 --steps 60 --evaluate-every 20 {TINY}", 60),
    "far-needles": ("lm passkey RUN --lengths 1x,2x --depths 2 --samples 1 --json FILE", 0),
    "rope-needles": ("lm passkey RUN --lengths 1x,2x --depths 2 --samples 1 --json FILE", 0),
    "fidelity": ("tunnel fidelity RUN --sequences 20 --json FILE", 0),
}}
demo.PARTS = {{
    name: demo.PARTS[name]._replace(command=command, trains=steps)
    for name, (command, steps) in short.items()
}}
demo.REDRAW = 30.0
sys.exit(main(["demo", "--out", sys.argv[1], "--no-open", "--workers", "2"]))
"""


def begin(folder):
    """In a place without tokens of a text, as in a fresh clone."""
    place = folder.parent
    with (place / "log").open("w") as log:
        pipes = {"stdout": log, "stderr": log, "cwd": place}
        return start("-c", SMALL, folder, **pipes, env={"BAYESATTN_RUNS": str(place / "runs")})


def answers(folder):
    """When each part was done."""
    paths = [*folder.glob("demo/*.json"), *folder.glob("demo/*/finished.json")]
    return {path: path.stat().st_mtime_ns for path in paths}


def progress(folder):
    """Steps that were logged, and parts that are done."""
    logs = folder.glob("demo/*/metrics.jsonl")
    return sum(len(log.read_bytes().splitlines()) for log in logs) + len(answers(folder))


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_demo_that_is_killed_goes_on_and_does_nothing_twice(tmp_path):
    folder, done = tmp_path / "report", {}
    for moment in sorted(random.Random(1).sample(range(sum(STEPS.values())), KILLS)):
        process = begin(folder)
        while progress(folder) < moment and process.poll() is None:
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, (tmp_path / "log").read_text()
        there = answers(folder)
        assert done.items() <= there.items(), "what was done is not done again"
        done = there
    assert begin(folder).wait() == 0, (tmp_path / "log").read_text()
    there = answers(folder)
    assert done.items() <= there.items() and len(there) == 6
    for run, steps in STEPS.items():
        lines = (folder / "demo" / run / "metrics.jsonl").read_text().splitlines()
        logged = [line["step"] for line in map(json.loads, lines) if "loss" in line]
        assert logged == list(range(1, steps + 1)), run
    assert begin(folder).wait() == 0
    assert "done before" in (tmp_path / "log").read_text() and answers(folder) == there
