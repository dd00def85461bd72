"""How many keys count beyond a horizon: entropies by running sums and by their definition."""

import math

import pytest
import torch

from bayesattn.attention.kernels.dense import bias, softmax
from bayesattn.attention.ssmax import log_in_play, log_visible
from bayesattn.attention.visibility import Visibility
from bayesattn.priors import GeneralizedGaussian
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


def entropy(table, seen, mask):
    """By the definition; 0 where there is no key."""
    prior = softmax(bias(table, seen).expand(len(mask), -1, -1, -1), mask)
    return torch.special.entr(prior).sum(-1)


def nearest(seen, mask, horizon):
    """The nearest keys up to the horizon, exempt ones first."""
    exempt = mask & seen.exempted(mask.device)
    near = mask & ~exempt
    left = horizon - exempt.sum(-1, keepdim=True)
    return exempt | (near & (near.flip(-1).cumsum(-1).flip(-1) <= left))


@pytest.mark.parametrize("spread", [1.0, 100.0])
@pytest.mark.parametrize("horizon", [1, 3, 6, 50])
@pytest.mark.parametrize("seen", SEEN.values(), ids=SEEN)
def test_it_grows_with_the_entropy_of_the_prior(seen, horizon, spread, generator):
    table = spread * torch.randn(3, seen.span, dtype=torch.float64, generator=generator)
    mask = seen.mask(table.device)
    within = nearest(seen, mask, horizon)
    wanted = log_visible(within.sum(-1)[:, 0], torch.float64)
    wanted = wanted + entropy(table, seen, mask) - entropy(table, seen, within)
    found = log_in_play(table, seen, horizon)
    assert found.shape == wanted.shape
    assert torch.allclose(found, wanted, atol=1e-9)  # rows that see nothing have 0 in both


@pytest.mark.parametrize("seen", SEEN.values(), ids=SEEN)
def test_its_gradient(seen, generator):
    table = torch.randn(2, seen.span, dtype=torch.float64, generator=generator).requires_grad_()
    assert torch.autograd.gradcheck(lambda t: log_in_play(t, seen, 3), table)


@pytest.mark.parametrize("horizon", [3, 50])
@pytest.mark.parametrize("seen", SEEN.values(), ids=SEEN)
def test_under_the_uniform_prior_and_up_to_the_horizon_all_keys_count(seen, horizon):
    visible = log_visible(seen.count(torch.device("cpu")), torch.float64)
    table = torch.zeros(1, seen.span, dtype=torch.float64)
    table = table if horizon == 3 else table - torch.arange(seen.span)
    found = log_in_play(table, seen, horizon)
    assert torch.allclose(found, visible.expand_as(found), atol=1e-12)


@torch.no_grad()
def test_a_local_head_stays_as_it_is_at_the_horizon():
    def log_n(length):
        table = GeneralizedGaussian(8, init="mixed").table(length)
        return log_in_play(table, Visibility(1, offset=length - 1), 128)[0, :, 0]

    assert log_n(128).tolist() == pytest.approx([math.log(128)] * 8)
    local, free = log_n(100_000).split(4)
    assert local.tolist() == pytest.approx([math.log(128)] * 4, abs=0.01)
    assert free.tolist() == pytest.approx([math.log(100_000)] * 4, rel=1e-4)


@pytest.mark.parametrize("beta", [-3.0, -0.6, 0.0, 2.0, 4.0])
def test_extreme_shapes_stay_finite(beta):
    prior = ggd(4, beta, torch.float32)
    found = log_in_play(prior.table(5000), Visibility(5000), 1)
    found.sum().backward()
    assert found.isfinite().all() and (found >= -1e-5).all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in prior.parameters())


def test_a_prior_far_below_zero_everywhere():
    """As of heads whose peak lies before the query; only differences count."""
    table = -torch.arange(20.0, dtype=torch.float64).expand(2, -1) / 3
    wanted = log_in_play(table, Visibility(20), 5)
    assert torch.allclose(log_in_play(table - 2000, Visibility(20), 5), wanted)
