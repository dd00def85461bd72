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

from bayesattn.models import parameter_groups
from bayesattn.models.architectures import Transformer, build
from bayesattn.training import Run, TrainConfig, TunnelTask, load_predictor
from bayesattn.training.seeds import step_seed
from bayesattn.tunnels import Bijection

ROOT = Path(__file__).parents[2]
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


@pytest.mark.slow
def test_kill_9_at_twenty_random_moments(tmp_path):
    process = start("-m", "tests.training.killing", str(tmp_path), "20", "0")
    out, err = process.communicate(timeout=280)
    assert process.returncode == 0, err
    found = json.loads(out)
    assert found["whole"]["finished"]["step"] == 60
    assert found["whole"]["leftovers"] == []
    for ending in found["endings"]:
        assert ending == found["whole"]
    moments = found["moments"]
    assert len(found["endings"]) == len(moments) == 20
    # They died all over the training, some while a checkpoint was being written.
    assert len({tuple(before) for before in moments}) >= 10
    assert any(name.startswith(".tmp") for before in moments for name in before)


@pytest.mark.slow
def test_ctrl_c_finishes_the_step_saves_and_says_how_to_go_on(tmp_path):
    folder = tmp_path / "run"
    words = [*SMALL, "--steps", "3000", "--log-every", "5", "--out", str(folder)]
    process = start("-m", "bayesattn", "tunnel", "train", *words)
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
    assert err == (
        f"Stopped after step {step} of 3000 and saved; "
        f"continue with: bayesattn tunnel train --resume {folder}\n"
    )


PAIR = """
import sys
from bayesattn.models.architectures import Transformer
from bayesattn.training import TrainConfig, train_tunnel
from bayesattn.tunnels import Bijection
config = TrainConfig(steps=6, batch_size=8, threads=1, log_every=2, warmup=0, decay=0)
run = train_tunnel(Bijection(4), Transformer(layers=1, width=8, heads=2), config, sys.argv[1])
sys.stdout.write(f"{run.finished['step']}\\n")  # one write: two processes share the pipe
"""


@pytest.mark.slow
def test_two_processes_train_as_one(tmp_path):
    """With the gradient averaged over both halves of the batch, and one of them writing."""
    script = tmp_path / "pair.py"
    script.write_text(PAIR)
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    process = start(*launch, str(script), str(tmp_path / "run"))
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    assert out.split() == ["6", "6"]
    run = Run.open(tmp_path / "run")
    assert [line["step"] for line in run.metrics() if "loss" in line] == [2, 4, 6]
    model, _ = load_predictor(run)
    expected = halves(6)
    for name, weight in run.checkpoint().tensors("model").items():
        torch.testing.assert_close(weight, expected[name], rtol=1e-4, atol=1e-6)
    assert model(torch.zeros(1, 5, dtype=torch.int64)).isfinite().all()


def halves(steps):
    """The same training in one process: both halves of each batch, one after the other."""
    tunnel, config = Bijection(4), TrainConfig()
    task = TunnelTask(tunnel, "posterior")
    model = build(Transformer(layers=1, width=8, heads=2), tunnel, 0)
    groups = parameter_groups(model, config.weight_decay, config.lr)
    optimizer = torch.optim.AdamW(groups, betas=config.betas)
    for step in range(steps):
        for rank in (0, 1):
            generator = torch.Generator().manual_seed(step_seed(0, step, rank, 2))
            (task.loss(model, task.batch(generator, 4)) / 2).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return model.state_dict()
