import pytest
import torch

from bayesattn.tunnels import shuffles
from bayesattn.tunnels.shuffles import random_orders


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


def test_taking_the_beginning(generator):
    orders = random_orders(5000, 9, generator, take=2)
    assert orders.shape == (5000, 2)
    assert (orders[:, 0] != orders[:, 1]).all()
    counts = orders.flatten().bincount(minlength=9).double()
    assert ((counts - 10_000 / 9).square() / (10_000 / 9)).sum() < 31  # eight degrees, p = 1e-4


def test_ties_do_not_favour_the_lower_index(generator, monkeypatch):
    """With few random bits nearly all rows tie: they must be drawn again, not left in order."""
    draw = torch.randint

    def coarse(high, shape, **options):
        return draw(min(high, 8), shape, **options)

    monkeypatch.setattr(shuffles.torch, "randint", coarse)
    orders = random_orders(12_000, 3, generator)
    counts = (orders * torch.tensor([9, 3, 1])).sum(1).unique(return_counts=True)[1].double()
    assert len(counts) == 6
    assert ((counts - 2000).square() / 2000).sum() < 26  # five degrees, p = 1e-4
