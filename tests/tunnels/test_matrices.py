import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from bayesattn.tunnels.matrices import check_grid, grid_rows, read_logs, round_rows, sample_rows
from tests.tunnels.oracles import repair


@pytest.mark.parametrize("alpha", [0.1, 1.0, 5.0])
@pytest.mark.parametrize(("size", "least"), [(2, 5), (5, 5), (8, 1), (20, 5), (10, 10), (7, 14)])
def test_rounding_in_closed_form_is_rounding_one_unit_at_a_time(alpha, size, least):
    rng = np.random.default_rng(size)
    rows = np.maximum(rng.dirichlet(np.full(size, alpha), 400), least / 100)
    rows /= rows.sum(1, keepdims=True)
    ours = round_rows(torch.from_numpy(rows), 100, least).numpy()
    expected = np.array([repair(row, 100, least) for row in rows])
    np.testing.assert_array_equal(ours, expected)
    assert (ours.sum(1) == 100).all() and ours.min() >= least


def test_a_fine_grid_is_rounded_as_exactly(generator):
    """More units than short integers can hold."""
    rows = sample_rows((20, 8), generator, alpha=0.5, min_prob=0.0, units=None)
    ours = round_rows(rows, 10_000, 3).numpy()
    np.testing.assert_array_equal(ours, [repair(row, 10_000, 3) for row in rows.numpy()])


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 300), min_size=2, max_size=9),
    st.integers(30, 200),
    st.integers(1, 3),
)
def test_rounding_repairs_any_surplus_or_lack(cents, units, least):
    row = np.array(cents) / units
    ours = round_rows(torch.from_numpy(row)[None], units, least)[0].numpy()
    np.testing.assert_array_equal(ours, repair(row, units, least))


def test_rows_sum_to_one_on_the_grid_and_above_the_minimum(generator):
    rows = sample_rows((3000, 5, 5), generator, alpha=1.0, min_prob=0.05, units=100)
    cents = (rows * 100).round()
    assert torch.equal(cents / 100, rows)
    assert (cents.sum(-1) == 100).all()
    assert cents.min() == 5
    assert cents.max() <= 80


def test_the_grid_and_the_minimum_are_obeyed_not_assumed(generator):
    """The published generator always rounded to hundredths of at least five."""
    rows = sample_rows((2000, 3), generator, alpha=1.0, min_prob=0.125, units=8)
    assert set((rows * 8).unique().tolist()) == {1, 2, 3, 4, 5, 6}


@pytest.mark.parametrize("alpha", [0.3, 1.0, 2.5])
def test_rows_are_dirichlet(alpha, generator):
    rows = sample_rows((4000, 4), generator, alpha=alpha, min_prob=0.0, units=None)
    for column in rows.T:
        assert stats.kstest(column.numpy(), stats.beta(alpha, 3 * alpha).cdf).pvalue > 1e-3


def test_clipping_without_a_grid(generator):
    rows = sample_rows((1000, 5), generator, alpha=1.0, min_prob=0.05, units=None)
    torch.testing.assert_close(rows.sum(-1), torch.ones(1000).double())
    assert 0.05 / 1.2 - 1e-12 <= rows.min() < 0.05


def test_logarithms_in_single_precision_lose_nothing_on_a_grid(generator):
    rows = sample_rows((1000, 5), generator, alpha=1.0, min_prob=0.05, units=100)
    assert torch.equal(read_logs(rows.log().float(), 100), rows)
    free = sample_rows((1000, 5), generator, alpha=1.0, min_prob=0.0, units=None)
    read = read_logs(free.log().float(), None)
    torch.testing.assert_close(read, free, rtol=1e-5, atol=0)
    torch.testing.assert_close(read.sum(-1), torch.ones(1000).double(), rtol=0, atol=1e-15)


def test_rows_on_a_grid_are_counted():
    brute = [(a, b) for a in range(2, 21) for b in range(2, 21) if 20 - a - b >= 2]
    assert grid_rows(3, 0.1, 0.05) == pytest.approx(math.log2(len(brute)))
    assert grid_rows(3, 0.1, None) == math.inf


def test_impossible_settings_are_refused_in_one_sentence():
    with pytest.raises(ValueError, match="alpha must be positive, not 0"):
        check_grid(5, 0, 0.05, 0.01)
    with pytest.raises(ValueError, match="between 0 and 1/5, since 5 entries make a row, not 0.3"):
        check_grid(5, 1, 0.3, 0.01)
    with pytest.raises(ValueError, match="1 divided by a whole number, not 0.03"):
        check_grid(5, 1, 0.06, 0.03)
    with pytest.raises(ValueError, match="positive multiple of the grid 0.02, not 0.05"):
        check_grid(5, 1, 0.05, 0.02)
    with pytest.raises(ValueError, match="positive multiple of the grid 0.01, not 0"):
        check_grid(5, 1, 0.0, 0.01)
    check_grid(5, 1, 0.2, 0.1)
    check_grid(5, 1, 0.0, None)
