"""Intervals over sequences: coverage, and what they do to absolute values."""

import pytest
import torch

from bayesattn.evals.bootstrap import bootstrap_estimate, resampling_weights
from bayesattn.evals.scores import Scores


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
        value, low, high = bootstrap_estimate(tokens.mean(), samples)
        assert low <= value <= high
        covered += low <= 0.5 <= high
    assert 0.91 <= covered / 400 <= 0.98


def scores(error):
    """Scores whose entropy error is `error` [N, S]."""
    zero = torch.zeros_like(error)
    return Scores(zero, zero, error, zero, zero, zero, zero, zero, zero, zero)


def test_interval_of_an_absolute_mean_holds_the_value_itself(generator):
    """Noise makes |mean| larger in every resample; unmoved percentiles miss the sample's own."""
    error = torch.randn(200, 50, generator=generator, dtype=torch.float64)
    weights = resampling_weights(200)
    everything = scores(error).metrics(torch.ones(1, 200, dtype=torch.float64))
    resampled = scores(error).metrics(weights)["mae_pos"]
    assert resampled.quantile(0.025) > everything["mae_pos"][0]
    estimate = bootstrap_estimate(everything["mae_pos"][0], resampled)
    assert 0 <= estimate.low < estimate.value < estimate.high


def test_weighted_metrics_are_those_of_the_resampled_sequences(generator):
    """Weights by counts against literally repeating sequences."""
    shape = (12, 5)
    fields = [torch.rand(shape, generator=generator, dtype=torch.float64) for _ in range(10)]
    fields[6:] = [(field > 0.5).double() for field in fields[6:]]
    drawn = torch.randint(12, (12,), generator=generator)
    weights = torch.bincount(drawn, minlength=12).double()[None]
    weighted = Scores(*fields).metrics(weights)
    even = torch.ones(1, 12, dtype=torch.float64)
    repeated = Scores(*(field[drawn] for field in fields)).metrics(even)
    for name in repeated:
        assert weighted[name].item() == pytest.approx(repeated[name].item(), abs=1e-12), name
