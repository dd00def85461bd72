"""Reliability bins and their error."""

import pytest
import torch

from bayesattn.evals.calibration import calibration_errors, reliability

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
    bins = reliability(confidence, correct, confidence / 2)
    assert bins.tokens.tolist() == [2, 2, 2]  # the empty ones are left out, 1.0 joins the last
    assert bins.confidence.tolist() == pytest.approx([0.005, 0.51, 0.995])
    assert bins.frequency.tolist() == [0.5, 0.5, 1.0]
    assert bins.bayes.tolist() == pytest.approx([0.0025, 0.255, 0.4975])
