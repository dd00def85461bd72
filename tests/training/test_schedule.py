import math

import pytest

from bayesattn.training import TrainConfig
from bayesattn.training.schedule import (
    checkpoint_steps,
    evaluation_interval,
    warmup_cosine,
    warmup_stable_decay,
)


def test_the_learning_rate_rises_stays_and_falls():
    factors = [warmup_stable_decay(step, 20, warmup=0.2, decay=0.25) for step in range(20)]
    rise, fall = [0.25, 0.5, 0.75, 1.0], [1.0, 0.8, 0.6, 0.4, 0.2]
    assert factors == pytest.approx([*rise, *[1.0] * 11, *fall])


def test_it_falls_to_a_floor():
    factors = [warmup_stable_decay(step, 10, 0, 0.5, floor=0.5) for step in range(10)]
    assert factors == pytest.approx([*[1.0] * 6, 0.9, 0.8, 0.7, 0.6])


def test_a_cosine_rises_and_falls_to_a_floor():
    factors = [warmup_cosine(step, 10, warmup=0.2, floor=0.1) for step in range(10)]
    cosine = [0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * k / 8)) for k in range(8)]
    assert factors == pytest.approx([0.5, 1.0, *cosine])
    assert warmup_cosine(5, 10, 0, 0.1) == pytest.approx(0.55)  # half way down
    assert all(warmup_cosine(step, 7, 1.0) > 0 for step in range(7))


def test_the_config_chooses():
    wsd = TrainConfig(steps=20, warmup=0.2, decay=0.25, floor=0.3)
    assert wsd.rate(19) == warmup_stable_decay(19, 20, 0.2, 0.25, 0.3)
    cosine = TrainConfig(steps=20, schedule="cosine", warmup=0.2, floor=0.3)
    assert cosine.rate(13) == warmup_cosine(13, 20, 0.2, 0.3)


@pytest.mark.parametrize("steps", [1, 2, 3, 1000])
def test_no_step_is_wasted(steps):
    for warmup, decay in ((0, 0), (1, 0), (0, 1), (0.5, 0.5)):
        factors = [warmup_stable_decay(step, steps, warmup, decay) for step in range(steps)]
        assert all(0 < factor <= 1 for factor in factors)
    assert {warmup_stable_decay(step, steps, 0, 0) for step in range(steps)} == {1.0}


def test_checkpoints_are_dense_then_sparse():
    steps = checkpoint_steps(21_000)
    assert steps[:12] == [*range(0, 1000, 100), 1000, 1500]
    assert steps[18:] == [5000, 6000, 7000, 8000, 9000, 10_000, 15_000, 20_000, 21_000]
    assert checkpoint_steps(5000) == [*range(0, 1000, 100), *range(1000, 5001, 500)]


def test_short_trainings_have_the_same_story_in_less_time():
    assert checkpoint_steps(500) == [*range(0, 100, 10), *range(100, 501, 50)]
    assert checkpoint_steps(3) == [0, 1, 2, 3]
    assert checkpoint_steps(1) == [0, 1]


@pytest.mark.parametrize(("steps", "every"), [(1, 50), (1000, 50), (1001, 51), (2000, 100)])
def test_there_are_at_most_twenty_evaluations(steps, every):
    assert evaluation_interval(steps) == every
