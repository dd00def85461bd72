"""Kills trainings with signal 9 at random moments and lets them go on. A program of its own.

    python -m tests.training.killing tunnel|language FOLDER KILLS SEED

Everything is imported once; each life of a training is a fork, which starts within milliseconds.
Prints, as JSON, how the uninterrupted run and each killed one ended.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch

from bayesattn.models.architectures import Transformer
from bayesattn.training import Run, TrainConfig, train_language, train_tunnel
from bayesattn.tunnels import Bijection
from tests.training.language_toy import toy_language, toy_training, write_corpus

MODEL = Transformer(layers=1, width=8, heads=2, prior="ggd")
CONFIG = TrainConfig(
    steps=60,
    batch_size=8,
    ema=0.9,
    log_every=5,
    evaluate_every=15,
    checkpoint_every=4,
    dynamics=True,
    threads=1,
)


def train(kind, folder):
    if kind == "tunnel":
        train_tunnel(Bijection(4), MODEL, CONFIG, folder, progress=False)
    else:
        language = toy_language(folder.parent / "text.jsonl")
        train_language(language, toy_training(steps=20), folder, progress=False)


def live(kind, folder):
    """Start a life of the run in `folder`; gives its process id."""
    if pid := os.fork():
        return pid
    code = 1
    try:
        train(kind, folder)
        code = 0
    finally:
        os._exit(code)


def wait(pid):
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def ending(folder):
    run = Run.open(folder)
    metrics = [{k: v for k, v in line.items() if k != "seconds"} for line in run.metrics()]
    checkpoint = run.checkpoint()
    finished = {k: v for k, v in run.finished.items() if k != "seconds"}
    leftovers = [path.name for path in run.folder.rglob(".tmp*")]
    hashes = checkpoint.state["sha256"]
    return {"finished": finished, "metrics": metrics, "sha256": hashes, "leftovers": leftovers}


def main(kind, folder, kills, seed):
    torch.set_num_threads(1)
    os.environ["BAYESATTN_RUNS"] = str(folder)
    write_corpus(folder / "text.jsonl")
    start = time.perf_counter()
    assert wait(live(kind, folder / "whole")) == 0
    duration = time.perf_counter() - start
    moments, endings, random_moment = [], [], random.Random(seed)
    while len(moments) < kills:
        life = folder / str(time.perf_counter_ns())
        pid = live(kind, life)
        time.sleep(random_moment.uniform(0.05, 0.9) * duration)
        os.kill(pid, signal.SIGKILL)
        if wait(pid) != -signal.SIGKILL:  # it had ended: a busy machine was slower before
            duration *= 0.8
            continue
        checkpoints = life / "checkpoints"
        before = sorted(path.name for path in checkpoints.glob("*")) if checkpoints.exists() else []
        moments.append(before)
        assert wait(live(kind, life)) == 0
        endings.append(ending(life))
    print(json.dumps({"whole": ending(folder / "whole"), "endings": endings, "moments": moments}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
