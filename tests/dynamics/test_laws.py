"""First-order predictions: exact where they claim it, wrong by O(η²) elsewhere."""

import dataclasses

import numpy as np
import pytest
import torch

from bayesattn.dynamics import laws
from bayesattn.dynamics.autograd import random_head

ETAS = np.geomspace(1e-3, 1e-5, 7)


@pytest.fixture(params=[False, True], ids=["all", "causal"])
def head(request, generator):
    return random_head(generator, 12, causal=request.param, prior=True, reduction="sum")


def slope(etas, remainders):
    return np.polyfit(np.log(etas), np.log(remainders), 1)[0]


def stepped(head, eta):
    return head.scores + laws.score_step(head.routing, eta)


def remainders(head, actual, predicted):
    return [(actual(eta) - predicted(head.routing, eta)).abs().max().item() for eta in ETAS]


def test_loss_after_a_value_step(head):
    def actual(eta):
        return head.loss_at(values=head.v + laws.value_step(head.routing, eta)) - head.loss

    found = remainders(head, actual, laws.loss_change_of_value_step)
    assert slope(ETAS, found) == pytest.approx(2, abs=0.05)


def test_loss_after_a_score_step(head):
    def actual(eta):
        return head.loss_at(scores=stepped(head, eta)) - head.loss

    found = remainders(head, actual, laws.loss_change_of_score_step)
    assert slope(ETAS, found) == pytest.approx(2, abs=0.05)


def test_attention_after_a_score_step(head):
    def actual(eta):
        return stepped(head, eta).softmax(-1) - head.alpha

    found = remainders(head, actual, laws.attention_change)
    assert slope(ETAS, found) == pytest.approx(2, abs=0.05)


def test_a_wrong_law_leaves_a_remainder_of_first_order(head):
    def actual(eta):
        return head.loss_at(values=head.v + laws.value_step(head.routing, eta)) - head.loss

    found = remainders(head, actual, lambda r, eta: 1.01 * laws.loss_change_of_value_step(r, eta))
    assert slope(ETAS, found) == pytest.approx(1, abs=0.05)


def test_attention_moves_where_the_formula_says(head):
    alpha, advantage = head.alpha, head.routing.advantage
    sign = alpha * advantage - (alpha.square() * advantage).sum(-1, keepdim=True)
    change = stepped(head, 1e-4).softmax(-1) - alpha
    clear = (alpha * sign).abs() > 1e-4
    assert clear.sum() > 20
    assert torch.equal(change[clear] > 0, sign[clear] > 0)
    torch.testing.assert_close(laws.attention_change(head.routing, 0.1), 0.1 * alpha * sign)


def test_what_one_value_does_to_one_query(head):
    """Move one value at a time and look at one query at a time."""
    eta = 1e-5
    predicted = laws.loss_change_by_pair(head.routing, eta)
    log_p = head.log_probabilities.gather(-1, head.labels[:, None])[:, 0]
    for key in (0, 5, 11):
        moved = head.v.clone()
        moved[key] += laws.value_step(head.routing, eta)[key]
        context = head.alpha @ moved
        logits = context @ head.w_o.mT + head.bias
        after = logits.log_softmax(-1).gather(-1, head.labels[:, None])[:, 0]
        torch.testing.assert_close(log_p - after, predicted[:, key], rtol=0, atol=1e-8)
    column = predicted.sum(-2)
    expected = -eta * head.routing.weighted_error.square().sum(-1)
    torch.testing.assert_close(column, expected)
    torch.testing.assert_close(column.sum(), laws.loss_change_of_value_step(head.routing, eta))


def test_a_dominant_user_gains(generator):
    head = random_head(generator, 6, causal=False, prior=False, reduction="sum")
    only = dataclasses.replace(head, log_prior=40 * torch.eye(6).double())
    by_pair = laws.loss_change_by_pair(only.routing, 0.1).diagonal()
    expected = -0.1 * only.alpha.diagonal().square() * only.upstream.square().sum(-1)
    torch.testing.assert_close(by_pair, expected)
    assert (by_pair < 0).all()


def test_compatibility_changes_exactly_so(head):
    eta = 0.7  # exact: any size will do
    after = head.upstream @ (head.v + laws.value_step(head.routing, eta)).mT
    change = after - head.routing.compatibility
    torch.testing.assert_close(laws.compatibility_change(head.routing, eta), change)
