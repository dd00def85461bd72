"""Kills work with signal 9 at random moments and lets it go on. A program of its own.

python -m tests.robust.killing FOLDER SEED KIND=KILLS …

Everything is imported once; each life is a fork. A life may be killed several times. Prints, as
JSON and by kind, how the work ended that nobody disturbed, how each killed one ended, and what was
there when they died. Kinds are tunnel, language, passkey, claims, engine.
"""

import json
import os
import random
import signal
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path

import torch

from bayesattn.claims import Tier
from bayesattn.evals.passkey import passkey
from bayesattn.ledger.engines import Here, Processes
from bayesattn.ledger.ledger import NAME, Ledger
from bayesattn.ledger.measured import FOLDER, read
from bayesattn.ledger.runner import run_claims
from bayesattn.ledger.trained import TunnelTraining
from bayesattn.ledger.typed import to_plain
from bayesattn.models.architectures import Transformer
from bayesattn.models.open import open_language
from bayesattn.training import TrainConfig
from bayesattn.tunnels import Bijection
from tests.ledger.toy import Toy
from tests.training.killing import ending, train, wait, write_corpus

DEATHS = 3
"""Most times that one work is killed."""


class Trained(Toy):
    """Measures how well a small model has learnt, a little of it for each seed."""

    def trainings(self, tier, seed):
        network = Transformer(layers=1, width=8, heads=2)
        config = TrainConfig(
            steps=15, batch_size=4, seed=seed, threads=1, log_every=3, checkpoint_every=2
        )
        return {"model": TunnelTraining(Bijection(4), network, config)}

    def measure(self, tier, seed):
        run = self.trainings(tier, seed)["model"].train()
        return {"effect": run.finished["metrics"]["kl"], "many": [1.0, 2.0]}


class Work:
    """A training, by the program that the tests of trainings use."""

    def __init__(self, kind):
        self.kind = kind

    def do(self, folder):
        train(self.kind, folder)

    def ending(self, folder):
        return ending(folder)


class Passkey:
    """Answers to prompts, kept in a file."""

    def __init__(self, kind):
        self.model = open_language("zoo:passkey")

    def do(self, folder):
        folder.mkdir(exist_ok=True)
        keep, done = folder / "answers.jsonl", folder / "found.json"
        found = passkey(self.model, "80,100,1x,160,200,2x,300,3x", depths=4, samples=2, keep=keep)
        done.write_text(json.dumps(found.to_json()))

    def ending(self, folder):
        lines = (folder / "answers.jsonl").read_text().splitlines()
        return {"found": json.loads((folder / "found.json").read_text()), "lines": sorted(lines)}


class Claims:
    """The seeds of a claim, trained, measured and judged."""

    def __init__(self, kind):
        self.processes = kind == "engine"

    def do(self, folder):
        os.environ["BAYESATTN_RUNS"] = str(folder / "runs")
        engine = Processes(2) if self.processes else Here()
        for _ in run_claims([Trained()], Tier.QUICK, folder / "out", engine=engine):
            pass

    def ending(self, folder):
        files = sorted((folder / "out" / FOLDER).glob("*.json"))
        rows = Ledger.load(folder / "out" / NAME).records["toy"].rows
        left = [path.name for path in folder.rglob(".tmp*")]
        return {"seeds": [read(f).numbers for f in files], "rows": to_plain(rows), "left": left}


KINDS = {"tunnel": Work, "language": Work, "passkey": Passkey, "claims": Claims, "engine": Claims}


def live(work, folder):
    """Start a life of the work in `folder`; gives its process id."""
    if pid := os.fork():
        return pid
    code = 1
    try:
        work.do(folder)
        code = 0
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(code)


def there(folder):
    """What is in a folder: how far the work is."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    return sorted((path.name, path.stat().st_size) for path in paths)


def until_it_works(pid, folder):
    """Wait until a file but a lock is written, which takes an engine seconds, or to the end."""

    def written():
        files = (path for path in folder.rglob("*") if path.is_file())
        return {path for path in files if not path.name.startswith(".")}  # locks

    before = written()
    with suppress(OSError):  # it just moved a folder
        while written() == before and not ended(pid):
            time.sleep(0.002)


def ended(pid):
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def main(folder, seed, wanted):
    torch.set_num_threads(1)
    found = {}
    for kind, kills in wanted.items():
        own = folder / kind
        own.mkdir()
        os.environ["BAYESATTN_RUNS"] = str(own)
        write_corpus(own / "text.jsonl")
        found[kind] = killed(kind, own, kills, seed)
    print(json.dumps(found))


def killed(kind, folder, kills, seed):
    work, chance = KINDS[kind](kind), random.Random(seed)
    pid = live(work, folder / "whole")
    until_it_works(pid, folder / "whole")
    start = time.perf_counter()
    assert wait(pid) == 0
    duration = time.perf_counter() - start
    moments, endings, survived = [], [], 0
    while len(moments) < kills:
        life = folder / f"life-{len(endings)}"
        for _ in range(chance.randint(1, min(DEATHS, kills - len(moments)))):
            pid = live(work, life)
            if chance.random() < 0.9:  # else it may die before
                until_it_works(pid, life)
            time.sleep(chance.uniform(0, 0.9) * duration)
            os.kill(pid, signal.SIGKILL)
            if wait(pid) == -signal.SIGKILL:
                moments.append(there(life))
            else:  # it had ended: a busy machine was slower before
                duration, survived = duration * 0.9, survived + 1
        assert wait(live(work, life)) == 0
        endings.append(work.ending(life))
    whole = work.ending(folder / "whole")
    return {"whole": whole, "endings": endings, "moments": moments}


if __name__ == "__main__":
    pairs = (word.split("=") for word in sys.argv[3:])
    main(Path(sys.argv[1]), int(sys.argv[2]), {kind: int(kills) for kind, kills in pairs})
