"""Real processes: kill -9, Ctrl-C, and two that train together."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from bayesattn.training import Run
from tests.training.pair import train_both

ROOT = Path(__file__).parents[2]
LANGUAGE = ["--size", "nano", "--layers", "1", "--batch-size", "4"]
SMALL = ["bijection", "--alphabet", "4", "--layers", "1", "--width", "8", "--heads", "2"]


def start(*words):
    return subprocess.Popen(
        [sys.executable, *words],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def killed(folder, kind, kills):
    """How a training that was killed so often ended, each time as one that was not."""
    process = start("-m", "tests.training.killing", kind, str(folder), str(kills), "0")
    out, err = process.communicate(timeout=280)
    assert process.returncode == 0, err
    found = json.loads(out)
    assert found["whole"]["leftovers"] == []
    assert len(found["endings"]) == len(found["moments"]) == kills
    for ending in found["endings"]:
        assert ending == found["whole"]
    return found


@pytest.mark.slow
def test_kill_9_at_twenty_random_moments(tmp_path):
    found = killed(tmp_path, "tunnel", 20)
    assert found["whole"]["finished"]["step"] == 60
    moments = found["moments"]
    # They died all over the training, some while a checkpoint was being written.
    assert len({tuple(before) for before in moments}) >= 10
    assert any(name.startswith(".tmp") for before in moments for name in before)


@pytest.mark.slow
def test_kill_9_of_a_language_model(tmp_path):
    found = killed(tmp_path, "language", 4)
    assert found["whole"]["finished"]["step"] == 20
    assert len({tuple(before) for before in found["moments"]}) >= 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tunnel", "lm"])
def test_ctrl_c_finishes_the_step_saves_and_says_how_to_go_on(tmp_path, corpus, kind):
    folder = tmp_path / "run"
    own = {"tunnel": SMALL, "lm": ["tiny", *LANGUAGE, "--corpus", str(corpus)]}[kind]
    words = [*own, "--steps", "3000", "--log-every", "5", "--out", str(folder)]
    process = start("-m", "bayesattn", kind, "train", *words)
    while not (folder / "metrics.jsonl").exists():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    run = Run.open(folder)
    step = run.checkpoint().step
    assert 0 < step < 3000 and run.finished is None
    assert out == ""
    assert err.splitlines(keepends=True)[-1] == (
        f"Stopped after step {step} of 3000 and saved; "
        f"continue with: bayesattn {kind} train --resume {folder}\n"
    )


@pytest.mark.slow
def test_two_processes_train_as_one(tmp_path, corpus):
    """The same batches, shared by rows: the number of processes changes nothing that is learnt."""
    train_both(tmp_path / "one", corpus)
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    process = start(*launch, "-m", "tests.training.pair", str(tmp_path / "two"), str(corpus))
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    first, second = out.splitlines()
    assert first == second and first.startswith("6 6 ")
    for name in ("tunnel", "language"):
        one, two = (Run.open(tmp_path / count / name) for count in ("one", "two"))
        assert [line["step"] for line in two.metrics() if "loss" in line] == [1, 2, 3, 4, 5, 6]
        for line, other in zip(one.metrics(), two.metrics(), strict=True):
            assert line.keys() == other.keys()
            assert line["loss"] == pytest.approx(other["loss"], rel=1e-5)
            assert line["gradient"] == pytest.approx(other["gradient"], rel=1e-4)
        weights = one.checkpoint().tensors("model")
        for key, weight in two.checkpoint().tensors("model").items():
            # Adam turns the rounding of a gradient that is almost 0 into a part of a step, lr 3e-3.
            torch.testing.assert_close(weight, weights[key], rtol=1e-3, atol=1e-3)
