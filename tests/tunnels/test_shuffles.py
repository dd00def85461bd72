import pytest
import torch

from bayesattn.tunnels import shuffles
from bayesattn.tunnels.shuffles import draws_for, random_orders


@pytest.mark.parametrize("size", [1, 2, 3, 20, 256, 257, 1000])
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


@pytest.mark.parametrize("size", [9, 40, 64, 256, 300, 5000])
def test_taking_the_beginning(size, generator):
    """Drawn until distinct if that is shorter than sorting all: 2 of 64, not 2 of 9."""
    rows = 3000 * size // 9
    orders = random_orders(min(rows, 100_000), size, generator, take=2)
    assert orders.dtype == torch.int64 and orders.shape == (min(rows, 100_000), 2)
    assert (orders[:, 0] != orders[:, 1]).all()
    for column in orders.unbind(1):
        expected = len(orders) / size
        counts = column.bincount(minlength=size).double()
        assert len(counts) == size
        spread = ((counts - expected).square() / expected).sum() - (size - 1)
        assert abs(spread) < 4.5 * (2 * (size - 1)) ** 0.5


@pytest.mark.parametrize("size", [40, 64])
def test_every_pair_is_equally_likely(size, generator):
    assert 2 * draws_for(2, size) <= size  # drawn, not sorted
    orders = random_orders(200_000, size, generator, take=2)
    pairs = (orders * torch.tensor([size, 1])).sum(1).bincount(minlength=size**2).double()
    pairs = pairs.view(size, size)
    assert pairs.diagonal().sum() == 0
    expected = 200_000 / (size * (size - 1))
    freedom = size * (size - 1) - 1
    spread = ((pairs - expected).square() / expected).sum() - size * expected - freedom
    assert abs(spread) < 4.5 * (2 * freedom) ** 0.5


@pytest.mark.parametrize("size, take", [(256, 64), (300, 64), (256, 5), (1000, 100)])
def test_many_of_more_are_distinct_and_in_random_order(size, take, generator):
    assert 2 * draws_for(take, size) <= size
    orders = random_orders(2000, size, generator, take=take)
    ranked = orders.sort(1).values
    assert (ranked[:, 1:] > ranked[:, :-1]).all()
    assert ranked[:, 0].min() >= 0 and ranked[:, -1].max() < size
    # each place has the mean of all values, and the first is larger than the last half of the time
    error = size / 12**0.5 / 2000**0.5
    assert (orders.double().mean(0) - (size - 1) / 2).abs().max() < 5 * error
    assert abs((orders[:, 0] > orders[:, -1]).double().mean() - 0.5) < 5 * 0.5 / 2000**0.5


def test_rows_with_too_few_distinct_draws_are_drawn_again(generator, monkeypatch):
    monkeypatch.setattr(shuffles, "draws_for", lambda take, size: take + 1)
    orders = random_orders(20_000, 64, generator, take=8)
    ranked = orders.sort(1).values
    assert (ranked[:, 1:] > ranked[:, :-1]).all()
    counts = orders.flatten().bincount(minlength=64).double()
    assert ((counts - 2500).square() / 2500).sum() < 110  # 63 degrees, p = 2e-4


def test_ties_do_not_favour_the_lower_index(generator, monkeypatch):
    """With few random bits nearly all rows tie: they must be drawn again, not left in order."""
    draw = shuffles.random_bits
    monkeypatch.setattr(shuffles, "random_bits", lambda *args: draw(*args).bitwise_and_(7))
    orders = random_orders(12_000, 3, generator)
    counts = (orders * torch.tensor([9, 3, 1])).sum(1).unique(return_counts=True)[1].double()
    assert len(counts) == 6
    assert ((counts - 2000).square() / 2000).sum() < 26  # five degrees, p = 1e-4


def test_the_first_different_ones_are_taken_in_order(generator, monkeypatch):
    """A row with too few different ones is drawn again: the next draws are for it alone."""
    draws = iter([[[3, 3, 1, 0, 3], [2, 2, 2, 1, 1], [0, 1, 2, 3, 0]], [[2, 1, 2, 3, 3]]])
    monkeypatch.setattr(shuffles, "draws_for", lambda take, size: 5)
    monkeypatch.setattr(shuffles, "_draws", lambda *args: torch.tensor(next(draws)))
    orders = random_orders(3, 16, generator, take=3)
    assert orders.tolist() == [[3, 1, 0], [2, 1, 3], [0, 1, 2]]


# Recorded runs were trained on what these seeds draw, and are resumed with it.
@pytest.mark.parametrize(
    "size, take, expected",
    [
        (6, None, [[2, 5, 1, 4, 0, 3], [4, 2, 0, 1, 5, 3]]),
        (64, 4, [[14, 8, 32, 35], [61, 38, 17, 20]]),
        (300, 4, [[11, 114, 67, 285], [288, 4, 79, 150]]),
        (1000, 3, [[411, 814, 767], [88, 404, 879]]),
    ],
)
def test_seeds_draw_what_they_always_drew(size, take, expected):
    orders = random_orders(2, size, torch.Generator().manual_seed(5), take=take)
    assert orders.tolist() == expected
