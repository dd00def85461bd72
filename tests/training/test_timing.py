import pytest

from bayesattn.training import loop
from bayesattn.training.loop import steps_within
from tests.training.toy import ToyTask, toy_config, toy_model


class SlowTask(ToyTask):
    """By its own clock a step takes 0.1 s, an evaluation 2 s."""

    now = 0.0

    def loss(self, model, batch):
        self.now += 0.1 if self.losses >= loop.WARM else 5.0
        return super().loss(model, batch)

    def evaluate(self, model):
        self.now += 2.0
        return super().evaluate(model)


def test_minutes_become_steps(monkeypatch):
    task = SlowTask()
    monkeypatch.setattr(loop.time, "perf_counter", lambda: task.now)
    assert steps_within(10, task, toy_model(), toy_config()) == pytest.approx(5600, abs=1)
    assert task.losses == loop.WARM + loop.TIMED
    assert steps_within(0.01, task, toy_model(), toy_config()) == 1


def test_slow_steps_are_not_timed_for_long(monkeypatch):
    task = SlowTask()
    monkeypatch.setattr(loop, "PATIENCE", 0.35)
    monkeypatch.setattr(loop.time, "perf_counter", lambda: task.now)
    assert steps_within(10, task, toy_model(), toy_config()) == pytest.approx(5600, abs=1)
    assert task.losses == loop.WARM + 4


@pytest.mark.parametrize("minutes", [0, -1, float("nan"), float("inf")])
def test_minutes_are_positive(minutes):
    with pytest.raises(ValueError, match="minutes must be positive"):
        steps_within(minutes, ToyTask(), toy_model(), toy_config())
