"""Intervals cover as often as they say."""

import math

import numpy as np
import pytest
import scipy.stats
import torch

from bayesattn import stats
from bayesattn.stats import percentiles, resampling_weights

SIMULATIONS = 2000


def within(rate, expected, trials):
    """Whether an observed rate is within four standard errors of the expected one."""
    return abs(rate - expected) < 4 * math.sqrt(expected * (1 - expected) / trials)


def contains(interval, value):
    return interval.low <= value <= interval.high


def test_t_interval_covers_as_stated_with_few_seeds():
    rng = np.random.default_rng(1)
    for n in (2, 3, 5):
        hits = [contains(stats.mean_interval(rng.normal(7, 2, n)), 7) for _ in range(SIMULATIONS)]
        assert within(np.mean(hits), stats.LEVEL, SIMULATIONS)


def test_bootstrap_interval_covers_nearly_as_stated_on_skewed_data():
    rng = np.random.default_rng(2)
    n, trials = 60, 300
    hits = [contains(stats.mean_interval(rng.exponential(1, n)), 1) for _ in range(trials)]
    assert 0.90 <= np.mean(hits) <= 0.98


def test_mean_interval_turns_to_the_bootstrap_for_large_samples():
    values = np.random.default_rng(4).exponential(1, stats.SMALL_SAMPLE)
    rng = np.random.default_rng(0)
    found = scipy.stats.bootstrap((values,), np.mean, method="BCa", rng=rng).confidence_interval
    assert stats.mean_interval(values) == (found.low, found.high) == stats.mean_interval(values)
    low, high = stats.mean_interval(values[:-1])
    assert low + high == pytest.approx(2 * values[:-1].mean())  # t is symmetric, BCa is not


@pytest.mark.parametrize("n", [2, stats.SMALL_SAMPLE])
def test_identical_values_give_a_point(n):
    assert stats.mean_interval([0.25] * n) == (0.25, 0.25)


def test_one_value_gives_no_interval():
    assert stats.mean_interval([3.0]) is None


@pytest.mark.parametrize("values", [[], [[1.0, 2.0]], [1.0, math.nan], [1.0, math.inf]])
def test_values_that_cannot_be_summarised_are_refused(values):
    with pytest.raises(ValueError, match="values must be"):
        stats.mean_interval(values)


@pytest.mark.parametrize("p", [0.05, 0.5, 0.9])
def test_wilson_interval_covers_on_average(p):
    trials = 40
    pmf = np.array(
        [math.comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(trials + 1)]
    )
    hits = [contains(stats.wilson_interval(k, trials), p) for k in range(trials + 1)]
    assert 0.92 <= float(pmf @ hits) <= 0.985


def test_wilson_interval_is_never_a_point_at_the_ends():
    assert stats.wilson_interval(0, 10).low == 0 < stats.wilson_interval(0, 10).high
    assert stats.wilson_interval(10, 10).low < 1 == stats.wilson_interval(10, 10).high


@pytest.mark.parametrize(("successes", "trials"), [(-1, 3), (4, 3), (0, 0)])
def test_wilson_interval_refuses_impossible_counts(successes, trials):
    with pytest.raises(ValueError, match="successes must lie in"):
        stats.wilson_interval(successes, trials)


def test_weights_are_counts_of_draws():
    counts = resampling_weights(50, resamples=400, seed=1)
    assert torch.equal(counts, counts.round()) and (counts >= 0).all()
    assert (counts.sum(1) == 50).all()
    assert counts.var().item() == pytest.approx(1 - 1 / 50, rel=0.05)  # multinomial
    assert torch.equal(counts, resampling_weights(50, resamples=400, seed=1))
    assert not torch.equal(counts, resampling_weights(50, resamples=400, seed=2))


def test_intervals_of_a_mean_cover_it_as_often_as_they_say(generator):
    """Tokens of a sequence are alike here: intervals over tokens would cover about half."""
    covered = 0
    weights = resampling_weights(100, resamples=500)
    for _ in range(400):
        level = torch.rand(100, 1, generator=generator, dtype=torch.float64)
        tokens = level.expand(100, 8)
        samples = weights @ tokens.mean(1) / 100
        value = float(tokens.mean())
        low, high = percentiles(samples, value)
        assert low <= value <= high
        covered += low <= 0.5 <= high
    assert 0.91 <= covered / 400 <= 0.98
