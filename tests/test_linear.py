"""Ridge and principal components, against their definitions, copies of rows and plain numpy."""

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr, spearmanr

from bayesattn import linear
from bayesattn.linear import fit, held_out_errors, principal_axes, read_folds
from bayesattn.stats import resampling_weights


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


@pytest.mark.parametrize("standardise", [True, False])
def test_weights_stand_for_copies(rows, standardise):
    weights = resampling_weights(len(rows), 8)
    grams = linear.gram(rows, weights, standardise=standardise)
    found = linear.shares(grams, weights)
    for number, own in enumerate(weights):
        variances, _ = spectrum(copies(rows, own), standardise)
        total = variances.sum()
        assert float(found.first[number]) == pytest.approx(variances[0] / total)
        assert float(found.two[number]) == pytest.approx(variances[:2].sum() / total)
        expected = total**2 / (variances**2).sum()
        assert float(found.participation[number]) == pytest.approx(expected)


def test_scores_are_of_every_row_drawn_or_not(rows):
    weights = resampling_weights(len(rows), 3)
    grams = linear.gram(rows, weights, standardise=True)
    found = linear.scores(grams, weights, components=2)
    for number, own in enumerate(weights):
        sample = copies(rows, own)
        _, directions = spectrum(sample, True)
        expected = ((rows.numpy() - sample.mean(0)) / sample.std(0)) @ directions[:2].T
        for component in range(2):
            a, b = found[number, :, component].numpy(), expected[:, component]
            assert np.allclose(a, b * np.sign(a @ b)), component


def test_columns_that_do_not_vary_count_for_nothing(rows):
    weights = torch.ones(1, len(rows), dtype=torch.float64)
    dead = torch.cat([rows, torch.full((len(rows), 5), 7.0)], dim=1)
    found = linear.gram(dead, weights, standardise=True)
    assert torch.allclose(found, linear.gram(rows, weights, standardise=True))


def test_errors_are_those_of_leaving_each_out(generator):
    rows = torch.randn(14, 25, generator=generator, dtype=torch.float64)
    bits = rows[:, 0] + torch.randn(14, generator=generator, dtype=torch.float64)
    found = held_out_errors(rows, bits[:, None])[:, 0]
    centred = rows - rows.mean(0)
    penalty = float((centred @ centred.T).diagonal().mean())
    for left in range(14):
        rest = [n for n in range(14) if n != left]
        x, y = rows[rest], bits[rest]
        cx, cy = x - x.mean(0), y - y.mean()
        weight = torch.linalg.solve(cx.T @ cx + penalty * torch.eye(25).double(), cx.T @ cy)
        guess = y.mean() + (rows[left] - x.mean(0)) @ weight
        assert float(found[left]) == pytest.approx(float(bits[left] - guess))


def test_each_fold_is_read_by_a_fit_to_the_others(generator):
    options = {"generator": generator, "dtype": torch.float64}
    x, y = (torch.randn(60, width, **options) * 5 + 100 for width in (6, 3))
    folds = torch.randint(-1, 4, (60,), generator=generator)
    found = read_folds(x, y, folds)
    assert torch.equal(found.isnan().any(1), folds < 0)
    for fold in range(4):
        own = folds == fold
        others = fit(x[~own], y[~own])
        expected = x[own] @ others.weight + others.offset
        torch.testing.assert_close(found[own], expected, rtol=0, atol=1e-9)


def test_principal_axes_are_those_of_the_covariance(rows):
    lengths, directions = principal_axes(rows)
    centred = rows - rows.mean(0)
    covariance = centred.T @ centred
    first = directions[0]
    torch.testing.assert_close(covariance @ first, lengths[0] ** 2 * first)
    assert (lengths.diff() <= 0).all()


def test_weighted_correlations_are_those_of_copies(generator):
    x = torch.randint(6, (15,), generator=generator).double()  # with ties
    y = x + torch.randn(15, generator=generator, dtype=torch.float64)
    weights = resampling_weights(15, 10)
    ranked, plain = linear.spearman(x, y, weights), linear.correlation(x, y, weights)
    for number, own in enumerate(weights):
        a, b = copies(x, own), copies(y, own)
        assert float(ranked[number]) == pytest.approx(spearmanr(a, b).statistic)
        assert float(plain[number]) == pytest.approx(np.corrcoef(a, b)[0, 1])
    assert float(linear.correlation(torch.ones(15).double(), y, weights)[0]) == 0


def test_correlations_are_those_of_scipy(generator):
    x = torch.randn(2, 50, generator=generator)
    y = (x + torch.randn(2, 50, generator=generator)).round(decimals=0)
    for number, flat in enumerate(zip(x.numpy(), y.numpy(), strict=True)):
        assert float(linear.correlation(x, y)[number]) == pytest.approx(pearsonr(*flat).statistic)
        assert float(linear.spearman(x, y)[number]) == pytest.approx(spearmanr(*flat).statistic)
