"""The demo, killed with signal 9 at random moments and started again: it ends, nothing twice."""

import json
import random
import signal
import subprocess
import sys
import time

import pytest

from tests.robust.common import TORTURE

KILLS = 10 if TORTURE else 2
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
demo.REDRAW = 2.0
sys.exit(main(["demo", "--out", sys.argv[1], "--no-open", "--workers", "2"]))
"""


def start(folder):
    log = (folder.parent / "log").open("w")
    return subprocess.Popen([sys.executable, "-c", SMALL, folder], stdout=log, stderr=log)


def answers(folder):
    """When each part was done."""
    paths = [*folder.glob("demo/*.json"), *folder.glob("demo/*/finished.json")]
    return {path: path.stat().st_mtime_ns for path in paths}


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_demo_that_is_killed_goes_on_and_does_nothing_twice(tmp_path):
    folder, chance = tmp_path / "report", random.Random(1)
    begin = time.monotonic()
    assert start(tmp_path / "whole").wait() == 0, (tmp_path / "log").read_text()
    duration = time.monotonic() - begin
    done, kills = {}, 0
    while kills < KILLS:
        process = start(folder)
        time.sleep(chance.uniform(0.05, 2 / KILLS + 0.1) * duration)
        process.send_signal(signal.SIGKILL)
        if process.wait() == 0:
            break  # it was done sooner than the last one
        kills += 1
        there = answers(folder)
        assert done.items() <= there.items(), "what was done is not done again"
        done = there
    assert start(folder).wait() == 0, (tmp_path / "log").read_text()
    assert done.items() <= answers(folder).items()
    assert len(answers(folder)) == 6
    for run, steps in (("far", 40), ("rope", 40), ("tunnel", 60)):
        lines = (folder / "demo" / run / "metrics.jsonl").read_text().splitlines()
        logged = [line["step"] for line in map(json.loads, lines) if "loss" in line]
        assert logged == list(range(1, steps + 1)), run
    found = {path.name: json.loads(path.read_text()) for path in folder.glob("demo/*.json")}
    whole = {p.name: json.loads(p.read_text()) for p in (tmp_path / "whole").glob("demo/*.json")}
    for name in ("far-needles.json", "rope-needles.json"):
        assert found[name]["lengths"] == whole[name]["lengths"]
    begin = time.monotonic()
    assert start(folder).wait() == 0
    assert "done before" in (tmp_path / "log").read_text()
    assert time.monotonic() - begin < duration / 2, "what is done is only shown"
