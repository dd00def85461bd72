import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from bayesattn.tunnels.sampling import (
    Rows,
    random_orders,
    round_rows,
    sample_chain,
    sample_observations,
)
from tests.tunnels.oracles import repair


@pytest.mark.parametrize("size", [1, 2, 20, 1000])
def test_every_row_is_an_order(size, generator):
    orders = random_orders(200, size, generator)
    assert orders.dtype == torch.int64
    assert torch.equal(orders.sort(1).values, torch.arange(size).expand(200, -1))


def test_every_order_is_equally_likely(generator):
    orders = random_orders(48_000, 4, generator)
    code = (orders * torch.tensor([64, 16, 4, 1])).sum(1)
    counts = code.unique(return_counts=True)[1].double()
    assert len(counts) == 24
    assert ((counts - 2000).square() / 2000).sum() < 55  # chi-squared, 23 degrees, p = 2e-4


@pytest.mark.parametrize("size", [9, 300])
def test_taking_the_beginning(size, generator):
    rows = 300 * size
    orders = random_orders(rows, size, generator, take=2)
    assert orders.dtype == torch.int64 and orders.shape == (rows, 2)
    assert (orders[:, 0] != orders[:, 1]).all()
    for column in orders.unbind(1):
        expected = len(orders) / size
        counts = column.bincount(minlength=size).double()
        assert len(counts) == size
        spread = ((counts - expected).square() / expected).sum() - (size - 1)
        assert abs(spread) < 4.5 * (2 * (size - 1)) ** 0.5


def test_every_pair_is_equally_likely(generator):
    size = 40
    orders = random_orders(200_000, size, generator, take=2)
    pairs = (orders * torch.tensor([size, 1])).sum(1).bincount(minlength=size**2).double()
    pairs = pairs.view(size, size)
    assert pairs.diagonal().sum() == 0
    expected = 200_000 / (size * (size - 1))
    freedom = size * (size - 1) - 1
    spread = ((pairs - expected).square() / expected).sum() - size * expected - freedom
    assert abs(spread) < 4.5 * (2 * freedom) ** 0.5


@pytest.mark.parametrize("size, take", [(256, 5), (300, 64)])
def test_many_of_more_are_distinct_and_in_random_order(size, take, generator):
    orders = random_orders(2000, size, generator, take=take)
    ranked = orders.sort(1).values
    assert (ranked[:, 1:] > ranked[:, :-1]).all()
    assert ranked[:, 0].min() >= 0 and ranked[:, -1].max() < size
    # each place has the mean of all values, and the first is larger than the last half of the time
    error = size / 12**0.5 / 2000**0.5
    assert (orders.double().mean(0) - (size - 1) / 2).abs().max() < 5 * error
    assert abs((orders[:, 0] > orders[:, -1]).double().mean() - 0.5) < 5 * 0.5 / 2000**0.5


def test_a_chain_starts_where_told_and_moves_by_its_own_matrix(generator):
    moves = torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]).double()
    stay = torch.eye(3).double()
    first = torch.tensor([2, 1, 0])
    chains = sample_chain(first, torch.stack([moves, stay, moves]), 5, generator)
    assert chains.tolist() == [[2, 0, 1, 2, 0], [1, 1, 1, 1, 1], [0, 1, 2, 0, 1]]
    assert sample_chain(first, torch.stack([moves] * 3), 1, generator).tolist() == [[2], [1], [0]]


def test_moves_have_the_frequencies_of_the_matrix(generator):
    matrix = torch.tensor([[0.7, 0.2, 0.1], [0.05, 0.05, 0.9], [1 / 3, 1 / 3, 1 / 3]]).double()
    chains = sample_chain(torch.zeros(500).long(), matrix.expand(500, -1, -1), 200, generator)
    pairs = (chains[:, :-1] * 3 + chains[:, 1:]).flatten().bincount(minlength=9).double()
    pairs = pairs.view(3, 3)
    expected = pairs.sum(1, keepdim=True) * matrix
    assert ((pairs - expected).square() / expected).sum() < 26  # six degrees, p = 2e-4


def test_observations_have_the_frequencies_of_their_states(generator):
    emission = torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.85, 0.05, 0.05, 0.05]]).double()
    emission = torch.stack([emission, emission.flip(0)])
    states = torch.randint(2, (2, 20_000), generator=generator)
    symbols = sample_observations(states, emission, generator)
    for row in range(2):
        counts = (states[row] * 4 + symbols[row]).bincount(minlength=8).double().view(2, 4)
        expected = counts.sum(1, keepdim=True) * emission[row]
        assert ((counts - expected).square() / expected).sum() < 26


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
    rows = Rows(0.5, 0.0, None).sample((20, 8), generator)
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
    rows = Rows(1.0, 0.05, 0.01).sample((3000, 5, 5), generator)
    cents = (rows * 100).round()
    assert torch.equal(cents / 100, rows)
    assert (cents.sum(-1) == 100).all()
    assert cents.min() == 5
    assert cents.max() <= 80


def test_the_grid_and_the_minimum_are_obeyed_not_assumed(generator):
    """The published generator always rounded to hundredths of at least five."""
    rows = Rows(1.0, 0.125, 0.125).sample((2000, 3), generator)
    assert set((rows * 8).unique().tolist()) == {1, 2, 3, 4, 5, 6}


@pytest.mark.parametrize("alpha", [0.3, 1.0, 2.5])
def test_rows_are_dirichlet(alpha, generator):
    rows = Rows(alpha, 0.0, None).sample((4000, 4), generator)
    for column in rows.T:
        assert stats.kstest(column.numpy(), stats.beta(alpha, 3 * alpha).cdf).pvalue > 1e-3


def test_clipping_without_a_grid(generator):
    rows = Rows(1.0, 0.05, None).sample((1000, 5), generator)
    torch.testing.assert_close(rows.sum(-1), torch.ones(1000).double())
    assert 0.05 / 1.2 - 1e-12 <= rows.min() < 0.05


def test_logarithms_in_single_precision_lose_nothing_on_a_grid(generator):
    rows = Rows(1.0, 0.05, 0.01).sample((1000, 5), generator)
    assert torch.equal(Rows(1.0, 0.05, 0.01).read(rows.log().float()), rows)
    free = Rows(1.0, 0.0, None).sample((1000, 5), generator)
    read = Rows(1.0, 0.0, None).read(free.log().float())
    torch.testing.assert_close(read, free, rtol=1e-5, atol=0)
    torch.testing.assert_close(read.sum(-1), torch.ones(1000).double(), rtol=0, atol=1e-15)


def test_impossible_settings_are_refused_in_one_sentence():
    with pytest.raises(ValueError, match="alpha must be positive, not 0"):
        Rows(0, 0.05, 0.01).check(5)
    with pytest.raises(ValueError, match="between 0 and 1/5, since 5 entries make a row, not 0.3"):
        Rows(1, 0.3, 0.01).check(5)
    with pytest.raises(ValueError, match="1 divided by a whole number, not 0.03"):
        Rows(1, 0.06, 0.03).check(5)
    with pytest.raises(ValueError, match="positive multiple of the grid 0.02, not 0.05"):
        Rows(1, 0.05, 0.02).check(5)
    with pytest.raises(ValueError, match="positive multiple of the grid 0.01, not 0"):
        Rows(1, 0.0, 0.01).check(5)
    Rows(1, 0.2, 0.1).check(5)
    Rows(1, 0.0, None).check(5)
