"""Laws from three tensors; first-order predictions are wrong by O(η²) only."""

import numpy as np
import pytest
import torch

from bayesattn.dynamics.autograd import random_head
from bayesattn.dynamics.routing import Routing

ETAS = np.geomspace(1e-3, 1e-5, 7)


@pytest.fixture(params=[False, True], ids=["all", "causal"])
def head(request, generator):
    return random_head(generator, 12, causal=request.param, prior=True, reduction="sum")


def slope(etas, remainders):
    return np.polyfit(np.log(etas), np.log(remainders), 1)[0]


def test_loss_after_a_step_along_either_gradient(head):
    """-η |g|², wrong by O(η²); what is off by a hundredth is wrong by O(η)."""
    values, scores = head.routing.weighted_error, head.routing.score_gradient
    after = {
        "values": (values, lambda eta: head.loss_at(values=head.v - eta * values)),
        "scores": (scores, lambda eta: head.loss_at(scores=head.scores - eta * scores)),
    }
    for gradient, loss_at in after.values():
        for factor, order in ((1.0, 2), (1.01, 1)):
            predicted = -factor * gradient.square().sum()
            found = [(loss_at(eta) - head.loss - eta * predicted).abs().item() for eta in ETAS]
            assert slope(ETAS, found) == pytest.approx(order, abs=0.05)


def test_the_published_vector():
    """One query with u = 1 and values b: their compatibility is b itself."""
    alpha = torch.tensor([[0.2, 0.5, 0.3]]).double()
    values = torch.tensor([[1.0], [-1.0], [0.5]]).double()
    routing = Routing(alpha, values, torch.ones(1, 1).double())
    torch.testing.assert_close(routing.compatibility, values.mT)
    torch.testing.assert_close(routing.row_mean, torch.tensor([-0.15]).double())
    expected = torch.tensor([[0.23, -0.425, 0.195]]).double()
    torch.testing.assert_close(routing.score_gradient, expected)
    torch.testing.assert_close(routing.advantage, torch.tensor([[-1.15, 0.85, -0.65]]).double())


def draw(generator, *leading):
    scores = torch.randn(*leading, 7, 9, generator=generator, dtype=torch.float64)
    values = torch.randn(*leading, 9, 4, generator=generator, dtype=torch.float64)
    upstream = torch.randn(*leading, 7, 4, generator=generator, dtype=torch.float64)
    return Routing(scores.softmax(-1), values, upstream)


def test_every_quantity_by_loops(generator):
    routing = draw(generator)
    alpha, v, u = routing.alpha, routing.values, routing.upstream
    for i in range(7):
        mean = sum(alpha[i, j] * (u[i] @ v[j]) for j in range(9))
        torch.testing.assert_close(routing.row_mean[i], mean)
        for j in range(9):
            b = u[i] @ v[j]
            torch.testing.assert_close(routing.compatibility[i, j], b)
            torch.testing.assert_close(routing.advantage[i, j], mean - b)
            torch.testing.assert_close(routing.score_gradient[i, j], alpha[i, j] * (b - mean))
    for j in range(9):
        torch.testing.assert_close(
            routing.weighted_error[j], sum(alpha[i, j] * u[i] for i in range(7))
        )


def test_rows_of_the_score_gradient_sum_to_zero(generator):
    gradient = draw(generator, 2, 3).score_gradient
    assert gradient.sum(-1).abs().max() < 1e-14
    assert gradient.abs().max() > 0.1


def test_a_raised_score_with_positive_advantage_lowers_what_is_paid(generator):
    """With u held, what a query pays is u_i·g_i."""
    routing = draw(generator)
    before = (routing.upstream * routing.context).sum(-1)
    for key in range(9):
        raised = routing.alpha.log()
        raised[:, key] += 1e-6
        after = (routing.upstream * (raised.softmax(-1) @ routing.values)).sum(-1)
        assert torch.equal(after < before, routing.advantage[:, key] > 0)


def test_unseen_keys_have_no_advantage(generator):
    routing = draw(generator)
    visible = torch.rand(7, 9, generator=generator) < 0.5
    visible[:, 0] = True
    alpha = routing.alpha.masked_fill(~visible, 0.0)
    masked = Routing(alpha, routing.values, routing.upstream, visible)
    assert (masked.advantage[~visible] == 0).all()
    assert (masked.advantage[visible] != 0).all()
    assert (masked.score_gradient[~visible] == 0).all()
