"""Runs of claims: kept, made anew when they are damaged, refused if they cannot be done."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from filelock import FileLock

from bayesattn.claims import Tier
from bayesattn.claims.registry import find_study
from bayesattn.errors import UserError
from bayesattn.files import parse
from bayesattn.ledger.trained import WAIT, TunnelTraining, rename_older_runs, require_possible
from bayesattn.models.architectures import Transformer
from bayesattn.training import TrainConfig
from bayesattn.tunnels import Bijection


@pytest.mark.parametrize("damage", ["config", "weights", "gone"])
def test_a_damaged_run_is_set_aside_and_trained_again(tmp_path, monkeypatch, capsys, damage):
    monkeypatch.setenv("BAYESATTN_RUNS", str(tmp_path))
    config = TrainConfig(steps=2, batch_size=4, threads=1)
    training = TunnelTraining(Bijection(4), Transformer(layers=1, width=16, heads=2), config)
    before = {name: x.clone() for name, x in training.model().state_dict().items()}
    last = training.folder / "checkpoints" / "step-000002"
    if damage == "config":
        (training.folder / "config.json").write_text("{")
    elif damage == "weights":
        largest = max(last.iterdir(), key=lambda path: path.stat().st_size)
        largest.write_bytes(largest.read_bytes()[:-8])
    else:
        last.rename(tmp_path / "elsewhere")
    after = training.model().state_dict()
    assert all(before[name].equal(after[name]) for name in before)
    assert (tmp_path / f"{training.folder.name}.aside-1").exists()
    assert "It was set aside as" in capsys.readouterr().err
    training.model()
    assert capsys.readouterr().err == ""


def test_a_run_that_another_process_trains_is_waited_for(tmp_path, monkeypatch):
    monkeypatch.setenv("BAYESATTN_RUNS", str(tmp_path))
    config = TrainConfig(steps=2, batch_size=4, threads=1)
    training = TunnelTraining(Bijection(4), Transformer(layers=1, width=16, heads=2), config)
    training.folder.mkdir(parents=True)
    other = FileLock(training.folder / ".lock").acquire()
    waits = []

    def wait(seconds):
        waits.append(seconds)
        other.lock.release()  # the other one is done

    monkeypatch.setattr("bayesattn.ledger.trained.time", SimpleNamespace(sleep=wait))
    assert training.train().finished is not None and waits == [WAIT]


def test_runs_of_older_versions_are_found_by_what_they_were_made_of(tmp_path, monkeypatch):
    monkeypatch.setenv("BAYESATTN_RUNS", str(tmp_path))
    config = TrainConfig(steps=2, batch_size=4, threads=1)
    training = TunnelTraining(Bijection(4), Transformer(layers=1, width=16, heads=2), config)
    training.train()
    old = tmp_path / "bijection-transformer-0123456789ab"
    training.folder.rename(old)
    stored = parse((old / "config.json").read_text())
    assert stored["architecture"]["sliding_window"] is None  # all fields, not only chosen ones
    stored["architecture"]["window"] = stored["architecture"].pop("sliding_window")
    (old / "config.json").write_text(json.dumps(stored))
    (tmp_path / "bijection-transformer-ffffffffffff").mkdir()
    (tmp_path / "bijection-transformer-ffffffffffff" / "config.json").write_text("{")
    rename_older_runs()
    assert not old.exists() and training.folder.exists()
    assert (tmp_path / "bijection-transformer-ffffffffffff").exists()
    monkeypatch.setattr("bayesattn.ledger.trained.train_tunnel", None)  # nothing is trained again
    with pytest.raises(TypeError):
        replace(training, config=replace(config, seed=9)).train()
    monkeypatch.undo()
    monkeypatch.setenv("BAYESATTN_RUNS", str(tmp_path))
    assert 2 in training.train().steps()


def trainings(name, tier):
    return list(find_study(name).trainings(tier, 0).values())


def test_quick_tiers_are_possible_and_cost_what_they_should():
    found = trainings("bam-perplexity", Tier.QUICK)
    one = found[0].demand()
    longer = replace(found[0], config=replace(found[0].config, steps=2 * found[0].config.steps))
    assert longer.demand().operations == 2 * one.operations
    assert longer.demand().bytes == one.bytes
    every = [*found, *trainings("tunnel-mlp", Tier.QUICK)]
    assert all(training.demand().operations > 0 for training in every)
    require_possible(every, 2)


@pytest.mark.parametrize(
    ("free", "tier", "sentence"),
    [
        (2**40, Tier.PAPER, r"These \d+ trainings would take about [\d,]+ days here"),
        (2**20, Tier.QUICK, r"needs about \d+ GiB and 0 GiB are free"),
    ],
)
def test_what_takes_days_or_does_not_fit_is_refused(monkeypatch, free, tier, sentence):
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=free))
    with pytest.raises(UserError, match=sentence):
        require_possible(trainings("bam-perplexity", tier), 2)
    require_possible([], 2)
