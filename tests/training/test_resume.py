"""A run that was stopped anywhere ends as if it had not been stopped."""

import pytest
import torch

from bayesattn.runs import Run as RunClass
from bayesattn.training import Run
from tests.training.toy import ToyTask, assert_same, stored, toy_config, toy_train


class Killed(BaseException):
    """As sudden as kill -9: nothing may be done about it."""


class MortalTask(ToyTask):
    """Dies instead of taking the given step."""

    def __init__(self, last):
        super().__init__()
        self.last = last

    def batch(self, generator, batch_size, step):
        if self.losses == self.last:
            raise Killed
        return super().batch(generator, batch_size, step)


def interrupted_train(folder, config, *lives):
    for steps in lives:
        with pytest.raises(Killed):
            toy_train(folder, config, task=MortalTask(steps))
    return toy_train(folder, config)


CONFIGS = {
    "adamw": {},
    "muon": {"optimizer": "muon"},
    "radam on a cosine": {"optimizer": "radam", "schedule": "cosine", "floor": 0.1},
    "bf16": {"precision": "bf16"},
    "ema": {"ema": 0.9},
    "muon and ema, no clipping": {"optimizer": "muon", "ema": 0.99, "clip": None},
    "target": {"target": 0.35, "lr": 0.03},
    "dynamics": {"dynamics": True, "checkpoint_every": 7},
}


@pytest.mark.parametrize("changes", CONFIGS.values(), ids=CONFIGS)
def test_a_run_that_died_ends_the_same(tmp_path, changes):
    config = toy_config(**changes)
    whole, model, result = toy_train(tmp_path / "whole", config)
    parts, same, again = interrupted_train(tmp_path / "parts", config, 3, 11, 1, 6)
    assert_same(whole, parts)
    for weight, other in zip(model.parameters(), same.parameters(), strict=True):
        assert torch.equal(weight, other)
    assert (result.step, result.metrics, result.stopped) == (
        again.step,
        again.metrics,
        again.stopped,
    )
    assert (result.stopped == "target") == ("target" in changes)


@pytest.mark.parametrize("every", [1, 2, 3, 4, 13, None])
def test_checkpoints_may_fall_anywhere(tmp_path, every):
    """Between two lines of metrics, too: the half-collected mean is part of the checkpoint."""
    whole, *_ = toy_train(tmp_path / "whole", toy_config(checkpoint_every=100))
    parts, *_ = interrupted_train(tmp_path / "parts", toy_config(checkpoint_every=every), 14, 5)
    assert_same(whole, parts)


def test_evaluations_change_nothing(tmp_path):
    often, *_ = toy_train(tmp_path / "often", toy_config(evaluate_every=1, ema=0.9))
    never, *_ = toy_train(tmp_path / "never", toy_config(evaluate_every=1000, ema=0.9))
    assert len(often.metrics()) > len(never.metrics())
    for name, tensors in stored(often)[0].items():
        others = stored(never)[0][name]
        assert all(torch.equal(tensor, others[key]) for key, tensor in tensors.items())


def test_the_callers_random_state_is_neither_used_nor_changed(tmp_path):
    first, *_ = toy_train(tmp_path / "first")
    torch.manual_seed(123)
    state = torch.get_rng_state()
    second, *_ = toy_train(tmp_path / "second")
    assert torch.equal(torch.get_rng_state(), state)
    assert_same(first, second)


def test_seeds_and_dropout_matter(tmp_path):
    """Otherwise the tests above would compare runs that cannot differ."""
    first, *_ = toy_train(tmp_path / "first", toy_config(seed=0))
    second, *_ = toy_train(tmp_path / "second", toy_config(seed=1))
    assert first.finished["metrics"] != second.finished["metrics"]


def test_a_finished_run_returns_at_once_with_its_weights(tmp_path):
    _, model, result = toy_train(tmp_path / "run")
    task = ToyTask()
    _, loaded, again = toy_train(tmp_path / "run", task=task)
    assert task.losses == 0
    assert again == result
    assert torch.equal(loaded[0].weight, model[0].weight)


def test_death_between_last_checkpoint_and_finish(tmp_path, monkeypatch):
    whole, *_ = toy_train(tmp_path / "whole")

    def die(self, result):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(RunClass, "finish", die)
        with pytest.raises(Killed):
            toy_train(tmp_path / "parts")
    assert Run.open(tmp_path / "parts").finished is None
    task = ToyTask()
    parts, *_ = toy_train(tmp_path / "parts", task=task)
    assert task.losses == 0
    assert_same(whole, parts)


def test_seconds_add_up_over_resumes(tmp_path):
    run, _, result = interrupted_train(tmp_path / "run", toy_config(), 12)
    seconds = [line["seconds"] for line in run.metrics()]
    assert seconds == sorted(seconds)
    assert result.seconds >= seconds[-1] > 0
    assert run.finished["seconds"] == result.seconds


def test_threads_are_those_of_the_beginning(tmp_path, monkeypatch):
    """The sum of a matrix product depends on how many threads share it."""
    used = []

    class Watching(MortalTask):
        def loss(self, model, batch):
            used.append(torch.get_num_threads())
            return super().loss(model, batch)

    config = toy_config(threads=None)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        with pytest.raises(Killed):
            toy_train(tmp_path / "run", config, task=Watching(7))
        torch.set_num_threads(1)
        toy_train(tmp_path / "run", config, task=Watching(None))
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
    assert set(used) == {3}
