"""Principal components under weights, against copies of rows and plain numpy."""

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from bayesattn import linear
from bayesattn.probes.llm import spectra
from bayesattn.probes.llm.resampled import weighted_correlation, weighted_spearman
from bayesattn.stats import resampling_weights

# n, d: share of PC 1, of PC 1 and 2, participation; derived, not reported
NOISE = {
    (13, 1024): (0.098, 0.194, 11.9),
    (15, 1024): (0.087, 0.170, 13.8),
    (150, 1024): (0.0126, 0.025, 130),
    (75, 1024): (0.0214, 0.042, 69),
    (75, 512): (0.025, 0.049, 65),
    (75, 192): (0.034, 0.066, 54),
}


def copies(rows, weights):
    """The resample itself: every row as often as it was drawn."""
    return rows.repeat_interleave(weights.long(), dim=0).numpy()


def spectrum(sample, standardise):
    sample = sample - sample.mean(0)
    if standardise:
        sample = sample / sample.std(0)
    _, lengths, directions = np.linalg.svd(sample, full_matrices=False)
    return lengths**2, directions


@pytest.fixture
def rows(generator):
    scale = torch.logspace(0, 1.5, 30, dtype=torch.float64)
    return torch.randn(12, 30, generator=generator, dtype=torch.float64) * scale + 3.0


@pytest.mark.parametrize(("size", "expected"), NOISE.items())
def test_noise_is_the_table(size, expected):
    assert spectra.noise(*size) == pytest.approx(expected, rel=0.1)


def test_parts_are_the_whole(rows, monkeypatch, generator):
    whole = spectra.permuted_shares(rows, 7, torch.Generator().manual_seed(1), standardise=True)
    monkeypatch.setattr(linear, "AT_ONCE", 1)
    one = spectra.permuted_shares(rows, 7, torch.Generator().manual_seed(1), standardise=True)
    assert len(one.first) == len(whole.first) == 7
    assert len(list(linear.chunks(torch.ones(7, 12), 30))) == 7


def test_shuffled_columns_lose_an_axis(generator):
    axis = torch.randn(40, 1, generator=generator, dtype=torch.float64)
    rows = axis + 0.3 * torch.randn(40, 20, generator=generator, dtype=torch.float64)
    weights = torch.ones(1, 40, dtype=torch.float64)
    value = linear.shares(linear.gram(rows, weights, standardise=True), weights).first
    null = spectra.permuted_shares(rows, 50, generator, standardise=True).first
    assert float(value) > 0.8 and float(null.max()) < 0.25


def test_weighted_correlations_are_those_of_copies(generator):
    x = torch.randint(6, (15,), generator=generator).double()  # with ties
    y = x + torch.randn(15, generator=generator, dtype=torch.float64)
    weights = resampling_weights(15, 10)
    ranked, plain = weighted_spearman(x, y, weights), weighted_correlation(x, y, weights)
    for number, own in enumerate(weights):
        a, b = copies(x, own), copies(y, own)
        assert float(ranked[number]) == pytest.approx(spearmanr(a, b).statistic)
        assert float(plain[number]) == pytest.approx(np.corrcoef(a, b)[0, 1])
    assert float(weighted_correlation(torch.ones(15).double(), y, weights)[0]) == 0
