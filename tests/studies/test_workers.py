"""Trainings of studies in processes of their own."""

import json
import multiprocessing
import os
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from bayesattn.studies import tunnel_bijection as bijection
from bayesattn.studies.study import Tier
from bayesattn.studies.workers import train_all, unfinished
from bayesattn.training import Run, TrainConfig
from tests.studies.test_tunnels import small


@dataclass(frozen=True)
class Sleep:
    """Stands for a training: notes when it begins and ends."""

    folder: Path
    seconds: float = 0.0
    crash: bool = False

    @property
    def config(self):
        return TrainConfig(steps=1 + round(1000 * self.seconds))

    def train(self):
        self.folder.mkdir(parents=True)
        (self.folder / "began").write_text(json.dumps(time.time()))
        if self.crash:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            time.sleep(self.seconds)
        except BaseException:
            (self.folder / "stopped").touch()
            raise
        (self.folder / "ended").write_text(json.dumps(time.time()))

    def between(self):
        times = [json.loads((self.folder / name).read_text()) for name in ("began", "ended")]
        return tuple(times)


@pytest.mark.slow
def test_as_many_at_once_as_there_are_workers(tmp_path):
    # long enough that even a slow machine has two of them going
    trainings = [Sleep(tmp_path / str(number), 4.0) for number in range(3)]
    told = []
    train_all(trainings, 2, told.append)
    assert sorted(told, key=lambda t: t.folder) == trainings
    spans = [training.between() for training in trainings]
    busy = [sum(began <= at < ended for began, ended in spans) for at, _ in spans]
    assert max(busy) == 2


@pytest.mark.slow
def test_a_process_that_dies_takes_only_its_own_training_with_it(tmp_path):
    trainings = [Sleep(tmp_path / str(number), crash=number == 1) for number in range(3)]
    told = []
    train_all(trainings, 1, told.append)
    assert len(told) == 3
    assert [(training.folder / "ended").exists() for training in trainings] == [True, False, True]


@pytest.mark.slow
def test_stopping_stops_the_trainings_and_begins_no_others(tmp_path):
    trainings = [Sleep(tmp_path / str(number), 60.0) for number in range(3)]

    def stop():
        while not all((t.folder / "began").exists() for t in trainings[:2]):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=stop).start()
    with pytest.raises(KeyboardInterrupt):
        train_all(trainings, 2)
    assert not trainings[2].folder.exists()
    assert not multiprocessing.active_children()


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.setenv("BAYESATTN_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


def test_only_what_is_missing_is_trained_and_only_once(runs):
    study = small(bijection.TunnelBijection)
    everything = unfinished([study, study], Tier.QUICK, [range(2), range(1)])
    assert len(everything) == 6  # three variants, two seeds
    everything[0].train()
    left = unfinished([study], Tier.QUICK, [range(2)])
    assert len(left) == 5
    assert everything[0] not in left
    assert Run.open(everything[0].folder).finished


def test_long_trainings_come_first(tmp_path):
    class Study:
        def trainings(self, tier, seed):
            return {str(n): Sleep(tmp_path / str(n), n) for n in (1, 3, 2)}

    found = unfinished([Study()], Tier.QUICK, [range(1)])
    assert [training.seconds for training in found] == [3, 2, 1]


@pytest.mark.slow
def test_trained_beside_each_other_as_trained_alone(runs, tmp_path, monkeypatch):
    study = small(bijection.TunnelBijection)
    alone = study.measure(Tier.QUICK, 0)
    monkeypatch.setenv("BAYESATTN_RUNS", str(tmp_path / "others"))
    train_all(unfinished([study], Tier.QUICK, [range(1)]), 2)
    monkeypatch.setattr("bayesattn.training.shared.train", lambda *_, **__: pytest.fail("trained"))
    assert study.measure(Tier.QUICK, 0) == alone
