import dataclasses
import math

import pytest
import torch

from bayesattn.dynamics.autograd import gradients_of, random_head
from bayesattn.dynamics.head import Gradients, Head

CASES = [
    (length, causal, prior, reduction)
    for length in (1, 5, 30)
    for causal in (False, True)
    for prior in (False, True)
    for reduction in ("sum", "mean")
]


@pytest.mark.parametrize(("length", "causal", "prior", "reduction"), CASES)
def test_closed_forms_are_those_of_autograd(generator, length, causal, prior, reduction):
    head = random_head(generator, length, causal=causal, prior=prior, reduction=reduction)
    expected = gradients_of(head)
    for name in Gradients._fields:
        torch.testing.assert_close(
            getattr(head.gradients, name), getattr(expected, name), rtol=0, atol=1e-10
        )


def slow_loss(head, name=None, index=None, by=0.0):
    """The loss in plain loops, with one number of the head moved."""
    parts = {field: getattr(head, field).clone() for field in ("w_q", "w_k", "w_v", "w_o", "bias")}
    if name in parts:
        parts[name][index] += by
    length = len(head.x)
    q, k, v = ([parts[w] @ x for x in head.x] for w in ("w_q", "w_k", "w_v"))
    for letter, rows in zip("qkv", (q, k, v), strict=True):
        if name == letter:
            rows[index[0]][index[1]] += by
    losses = []
    for i in range(length):
        weights = []
        for j in range(length):
            score = (q[i] @ k[j]).item() / math.sqrt(len(q[i]))
            score += head.log_prior[i, j].item() if head.log_prior is not None else 0.0
            score += by if name == "scores" and index == (i, j) else 0.0
            visible = head.mask is None or bool(head.mask[i, j])
            weights.append(math.exp(score) if visible else 0.0)
        context = sum(weight * value for weight, value in zip(weights, v, strict=True))
        logits = (parts["w_o"] @ (context / sum(weights)) + parts["bias"]).tolist()
        total = math.log(math.fsum(math.exp(logit) for logit in logits))
        losses.append(total - logits[head.labels[i]])
    return math.fsum(losses) / (length if head.reduction == "mean" else 1)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_closed_forms_are_those_of_finite_differences(generator, causal, reduction):
    head = random_head(generator, 4, causal=causal, prior=True, reduction=reduction)
    assert head.loss.item() == pytest.approx(slow_loss(head), abs=1e-13)
    h = 1e-3
    for name in Gradients._fields:
        gradient = getattr(head.gradients, name)
        for index in [(0,) * gradient.dim(), tuple(size - 1 for size in gradient.shape)]:
            near, far = (
                (slow_loss(head, name, index, d) - slow_loss(head, name, index, -d)) / (2 * d)
                for d in (h, 2 * h)
            )
            richardson = (4 * near - far) / 3  # wrong by h⁴ only
            assert gradient[index].item() == pytest.approx(richardson, abs=1e-8)


def test_the_identities_of_the_paper(generator):
    """∇W_V = U α Xᵀ in its columns, ∇W = Xᵀ(…) in code that writes x @ W."""
    head = random_head(generator, 12, causal=True, prior=False, reduction="sum")
    x, u, alpha, dS = head.x, head.upstream, head.alpha, head.gradients.scores
    d_k = head.w_q.shape[0]
    columns = u.mT @ alpha @ x
    rows = {
        "w_v": x.mT @ (alpha.mT @ u),
        "w_q": x.mT @ (dS @ head.k) / d_k**0.5,
        "w_k": x.mT @ (dS.mT @ head.q) / d_k**0.5,
        "w_o": head.context.mT @ head.errors,
    }
    torch.testing.assert_close(head.gradients.w_v, columns)
    for name, expected in rows.items():
        torch.testing.assert_close(getattr(head.gradients, name).mT, expected)
    mean = (alpha * head.routing.compatibility).sum(-1)
    torch.testing.assert_close(mean, (u * head.context).sum(-1))
    assert dS.sum(-1).abs().max() < 1e-13


def test_leading_dimensions_are_heads_of_their_own(generator):
    heads = [random_head(generator, 8, causal=True, prior=True) for _ in range(6)]
    names = ("x", "w_q", "w_k", "w_v", "w_o", "labels", "bias", "mask", "log_prior")
    stacked = Head(
        **{
            name: torch.stack([getattr(head, name) for head in heads]).unflatten(0, (2, 3))
            for name in names
        }
    )
    assert stacked.loss.shape == (2, 3)
    for name in Gradients._fields:
        expected = torch.stack([getattr(head.gradients, name) for head in heads])
        torch.testing.assert_close(
            getattr(stacked.gradients, name), expected.unflatten(0, (2, 3)), rtol=0, atol=1e-13
        )
    torch.testing.assert_close(stacked.loss.flatten(), torch.stack([head.loss for head in heads]))


def test_many_weights_on_one_sequence(generator):
    one = random_head(generator, 8, causal=True, prior=False)
    other = random_head(generator, 8, causal=True, prior=False)
    both = {
        name: torch.stack([getattr(head, name) for head in (one, other)])
        for name in ("w_q", "w_k", "w_v", "w_o", "bias")
    }
    wide = dataclasses.replace(one, **both)
    narrow = dataclasses.replace(one, **{name: value[1] for name, value in both.items()})
    torch.testing.assert_close(wide.gradients.w_k[1], narrow.gradients.w_k)
    torch.testing.assert_close(wide.loss[1], narrow.loss)


def test_a_prior_of_minus_infinity_is_a_mask(generator):
    masked = random_head(generator, 9, causal=True, prior=False)
    hidden = torch.zeros(9, 9).double().masked_fill(~masked.mask, -math.inf)
    by_prior = dataclasses.replace(masked, mask=None, log_prior=hidden)
    for one, other in zip(masked.gradients, by_prior.gradients, strict=True):
        torch.testing.assert_close(one, other)
    torch.testing.assert_close(masked.routing.advantage, by_prior.routing.advantage)
    assert (by_prior.routing.advantage.triu(1) == 0).all()


def test_uniform_output_loses_the_logarithm_of_the_outcomes(generator):
    head = random_head(generator, 9, causal=True, prior=False)
    flat = dataclasses.replace(head, w_o=torch.zeros_like(head.w_o), bias=None)
    assert flat.loss.item() == pytest.approx(math.log(3), abs=1e-15)


def test_loss_at_what_it_has_is_its_loss(generator):
    head = random_head(generator, 9, causal=True, prior=True)
    torch.testing.assert_close(head.loss_at(scores=head.scores, values=head.v), head.loss)
    torch.testing.assert_close(head.loss_at(), head.loss)
    assert head.loss_at(values=2 * head.v) != head.loss
    assert head.loss_at(scores=2 * head.scores) != head.loss


def test_bad_input_gets_one_sentence(generator):
    head = random_head(generator, 3, causal=True, prior=False)
    with pytest.raises(ValueError, match="reduction must be sum or mean, not 'total'"):
        dataclasses.replace(head, reduction="total")
    with pytest.raises(ValueError, match="a query sees no key at all"):
        dataclasses.replace(head, mask=torch.ones(3, 3).triu(1).bool())
