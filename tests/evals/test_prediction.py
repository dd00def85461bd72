"""Scores under weights, reliability bins and their error."""

import pytest
import torch

from bayesattn.evals.fidelity import _estimate
from bayesattn.evals.prediction import Scores, calibration_errors
from bayesattn.stats import resampling_weights

EVEN = torch.ones(1, 2000, dtype=torch.float64)


def coins(generator, bias):
    """Confidences, and outcomes that come true with `bias` times that probability."""
    confidence = torch.rand(2000, 20, generator=generator, dtype=torch.float64)
    chance = torch.rand(2000, 20, generator=generator, dtype=torch.float64)
    return confidence, (chance < bias * confidence).double()


def test_a_calibrated_predictor_has_only_sampling_error(generator):
    assert calibration_errors(*coins(generator, 1.0), EVEN).item() < 0.01


def test_overconfidence_is_measured_in_probability(generator):
    # E[c - 0.8 c] = 0.2 · 0.5
    error = calibration_errors(*coins(generator, 0.8), EVEN).item()
    assert error == pytest.approx(0.1, abs=0.01)


def test_bins_are_means_of_their_tokens():
    confidence = torch.tensor([[0.0, 0.01, 0.5], [0.52, 0.99, 1.0]], dtype=torch.float64)
    correct = torch.tensor([[0.0, 1.0, 1.0], [0.0, 1.0, 1.0]], dtype=torch.float64)
    zero = torch.zeros_like(correct)
    scores = Scores(zero, zero, zero, zero, confidence, confidence / 2, zero, zero, correct, zero)
    bins = scores.reliability()
    assert bins["tokens"].tolist() == [2, 2, 2]  # the empty ones are left out, 1.0 joins the last
    assert bins["confidence"].tolist() == pytest.approx([0.005, 0.51, 0.995])
    assert bins["frequency"].tolist() == [0.5, 0.5, 1.0]
    assert bins["bayes"].tolist() == pytest.approx([0.0025, 0.255, 0.4975])


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
    value, (low, high) = _estimate(float(everything["mae_pos"]), resampled)
    assert 0 <= low < value < high


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
