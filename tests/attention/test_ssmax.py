"""How many keys matter: the entropy of the prior, by running sums and by its definition."""

import math

import pytest
import torch

from bayesattn.attention.kernels.dense import bias, softmax
from bayesattn.attention.ssmax import log_effective, log_visible
from bayesattn.attention.visibility import Visibility
from bayesattn.priors import GeneralizedGaussian, Laplace
from tests.attention.scenes import ggd

FIRST = torch.tensor([[0, 0, 0, 3, 3, 3, 3, 3, 8, 8], [12, 12, 12, 12, 12, 12, 12, 12, 12, 12]])
SEEN = {
    "causal": Visibility(10),
    "one": Visibility(1, offset=9),
    "window": Visibility(10, offset=2, window=4),
    "documents": Visibility(10, first=FIRST),
    "padding": Visibility(10, offset=4, first=FIRST),
    "exempt": Visibility(10, offset=2, exempt=3),
    "exempt in a window": Visibility(10, offset=2, window=5, exempt=3, first=FIRST),
}


@pytest.mark.parametrize("spread", [1.0, 300.0])
@pytest.mark.parametrize("seen", SEEN.values(), ids=SEEN)
def test_it_is_the_entropy_of_the_prior(seen, spread, generator):
    table = spread * torch.randn(3, seen.span, dtype=torch.float64, generator=generator)
    mask = seen.mask(table.device)
    prior = softmax(bias(table, seen).expand(len(mask), -1, -1, -1), mask)
    wanted = torch.special.entr(prior).sum(-1)
    found = log_effective(table, seen)
    assert found.shape == wanted.shape
    assert torch.allclose(found, wanted, atol=1e-9)  # rows that see nothing have 0 in both


@pytest.mark.parametrize("seen", SEEN.values(), ids=SEEN)
def test_its_gradient(seen, generator):
    table = torch.randn(2, seen.span, dtype=torch.float64, generator=generator).requires_grad_()
    assert torch.autograd.gradcheck(lambda t: log_effective(t, seen), table)


@pytest.mark.parametrize("seen", SEEN.values(), ids=SEEN)
def test_under_the_uniform_prior_all_visible_keys_count(seen):
    visible = log_visible(seen.count(torch.device("cpu")), torch.float64)
    found = log_effective(torch.zeros(1, seen.span, dtype=torch.float64), seen)
    assert torch.allclose(found, visible.expand_as(found), atol=1e-12)


@torch.no_grad()
def test_far_keys_do_not_count_for_a_local_head():
    """An exponential prior of slope 1/2 leaves as many keys in play at any length."""
    slope = 0.5
    share = [math.exp(-slope * d) * (1 - math.exp(-slope)) for d in range(2000)]
    entropy = -sum(p * math.log(p) for p in share if p > 0)
    for length in (100, 100_000):
        table = Laplace(8).table(length)
        local = log_effective(table, Visibility(1, offset=length - 1))[0, 0, 0]
        assert float(table[0, 1]) == -slope
        assert float(local) == pytest.approx(entropy, rel=1e-5)
    mixed = GeneralizedGaussian(8, init="mixed").table(100_000)
    near, far = log_effective(mixed, Visibility(1, offset=99_999))[0, :, 0].split(4)
    assert near.max() < 5 and far.min() == pytest.approx(math.log(100_000), rel=1e-4)


@pytest.mark.parametrize("beta", [-3.0, -0.6, 0.0, 2.0, 4.0])
def test_extreme_shapes_stay_finite(beta):
    prior = ggd(4, beta, torch.float32)
    found = log_effective(prior.table(5000), Visibility(5000))
    found.sum().backward()
    assert found.isfinite().all() and (found >= -1e-5).all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in prior.parameters())
