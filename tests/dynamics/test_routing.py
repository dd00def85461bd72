"""Laws from three tensors; first-order predictions are wrong by O(η²) only."""

import dataclasses

import numpy as np
import pytest
import torch

from bayesattn.dynamics.autograd import random_head
from bayesattn.dynamics.routing import DEAD, Routing

ETAS = np.geomspace(1e-3, 1e-5, 7)


@pytest.fixture(params=[False, True], ids=["all", "causal"])
def head(request, generator):
    return random_head(generator, 12, causal=request.param, prior=True, reduction="sum")


def slope(etas, remainders):
    return np.polyfit(np.log(etas), np.log(remainders), 1)[0]


def stepped(head, eta):
    return head.scores + head.routing.score_step(eta)


def remainders(head, actual, predicted):
    return [(actual(eta) - predicted(eta)).abs().max().item() for eta in ETAS]


def test_loss_after_a_value_step(head):
    def actual(eta):
        return head.loss_at(values=head.v + head.routing.value_step(eta)) - head.loss

    found = remainders(head, actual, head.routing.loss_change_of_value_step)
    assert slope(ETAS, found) == pytest.approx(2, abs=0.05)


def test_loss_after_a_score_step(head):
    def actual(eta):
        return head.loss_at(scores=stepped(head, eta)) - head.loss

    found = remainders(head, actual, head.routing.loss_change_of_score_step)
    assert slope(ETAS, found) == pytest.approx(2, abs=0.05)


def test_attention_after_a_score_step(head):
    def actual(eta):
        return stepped(head, eta).softmax(-1) - head.alpha

    found = remainders(head, actual, head.routing.attention_change)
    assert slope(ETAS, found) == pytest.approx(2, abs=0.05)


def test_a_wrong_law_leaves_a_remainder_of_first_order(head):
    def actual(eta):
        return head.loss_at(values=head.v + head.routing.value_step(eta)) - head.loss

    found = remainders(head, actual, lambda eta: 1.01 * head.routing.loss_change_of_value_step(eta))
    assert slope(ETAS, found) == pytest.approx(1, abs=0.05)


def test_attention_moves_where_the_formula_says(head):
    alpha, advantage = head.alpha, head.routing.advantage
    sign = alpha * advantage - (alpha.square() * advantage).sum(-1, keepdim=True)
    change = stepped(head, 1e-4).softmax(-1) - alpha
    clear = (alpha * sign).abs() > 1e-4
    assert clear.sum() > 20
    assert torch.equal(change[clear] > 0, sign[clear] > 0)
    torch.testing.assert_close(head.routing.attention_change(0.1), 0.1 * alpha * sign)


def test_what_one_value_does_to_one_query(head):
    """Move one value at a time and look at one query at a time."""
    eta = 1e-5
    predicted = head.routing.loss_change_by_pair(eta)
    log_p = head.log_probabilities.gather(-1, head.labels[:, None])[:, 0]
    for key in (0, 5, 11):
        moved = head.v.clone()
        moved[key] += head.routing.value_step(eta)[key]
        context = head.alpha @ moved
        logits = context @ head.w_o.mT + head.bias
        after = logits.log_softmax(-1).gather(-1, head.labels[:, None])[:, 0]
        torch.testing.assert_close(log_p - after, predicted[:, key], rtol=0, atol=1e-8)
    column = predicted.sum(-2)
    expected = -eta * head.routing.weighted_error.square().sum(-1)
    torch.testing.assert_close(column, expected)
    torch.testing.assert_close(column.sum(), head.routing.loss_change_of_value_step(eta))


def test_a_dominant_user_gains(generator):
    head = random_head(generator, 6, causal=False, prior=False, reduction="sum")
    only = dataclasses.replace(head, log_prior=40 * torch.eye(6).double())
    by_pair = only.routing.loss_change_by_pair(0.1).diagonal()
    expected = -0.1 * only.alpha.diagonal().square() * only.upstream.square().sum(-1)
    torch.testing.assert_close(by_pair, expected)
    assert (by_pair < 0).all()


def test_compatibility_changes_exactly_so(head):
    eta = 0.7  # exact: any size will do
    after = head.upstream @ (head.v + head.routing.value_step(eta)).mT
    change = after - head.routing.compatibility
    torch.testing.assert_close(head.routing.compatibility_change(eta), change)


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
        torch.testing.assert_close(routing.usage[j], sum(alpha[i, j] for i in range(7)))


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


def test_dead_values_are_seen_and_not_used():
    visible = torch.ones(4, 4, dtype=torch.bool).tril()
    visible[:, 1] = False  # nobody sees key 1
    alpha = torch.zeros(4, 4)
    alpha[:, 0] = 1.0
    alpha[3] = torch.tensor([1 - 0.0026, 0.0, 0.0, 0.0026])
    values = torch.zeros(4, 2)
    routing = Routing(alpha, values, values, visible)
    # uniform attention would use key 2 for 1/2 + 1/3 and key 3 for 1/3
    assert routing.dead.tolist() == [False, False, True, True]
    alpha[3, 3] = DEAD / 3 * 1.01
    assert Routing(alpha, values, values, visible).dead.tolist() == [False, False, True, False]


def test_dead_values_where_all_see_all():
    alpha = torch.tensor([[0.995, 0.005, 0.0], [0.98, 0.01, 0.01]])
    # two queries would use each of three values for 2/3: a hundredth of it is 0.0067
    assert Routing(alpha, alpha.mT, alpha).dead.tolist() == [False, False, False]
    alpha[1, 2] = 0.008
    assert Routing(alpha, alpha.mT, alpha).dead.tolist() == [False, False, False]
    alpha[1, 2] = 0.006
    assert Routing(alpha, alpha.mT, alpha).dead.tolist() == [False, False, True]
