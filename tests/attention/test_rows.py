"""Rows that nobody reads are not computed, and the others are those of the whole."""

import pytest
import torch

from bayesattn import attend
from tests.attention.scenes import Scene, count_pairs, ggd, ssmax

KEYS = 40
ROWS = {
    "the last ones": range(31, 40),
    "one": [17],
    "first and last": [0, 39],
    "scattered": [3, 4, 5, 11, 30, 31, 38],
    "a tensor": torch.tensor([2, 3, 21]),
    "all": range(KEYS),
}
PLACES = {
    "causal": {},
    "padding": {"padding": torch.tensor([0, 6])},
    "documents": {"documents": torch.tensor([[0] * 9 + [1] * 31, [5] * 22 + [7] * 18])},
    "window, exempt": {"window": 9, "exempt": 3},
}


def cut(rows, place, dtype=torch.float64):
    """All queries, those of some rows, keys, values and a gradient; the rest of the arguments."""
    q, k, v, grad = Scene(queries=KEYS, keys=KEYS).tensors(dtype)
    return q, q[:, :, list(rows)].clone(), k, v, grad[:, :, list(rows)], PLACES[place]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("scope", [None, "content+prior", "horizon"])
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("kernel", ["dense", "strided"])
def test_they_are_those_of_the_whole(kernel, rows, scope, place):
    chosen = ROWS[rows]
    q, some, k, v, grad, options = cut(chosen, place)
    k, v = k.requires_grad_(), v.requires_grad_()
    prior, temper = ggd(4, 0.5), ssmax(4, scope)
    leaves = [k, v, prior.theta_alpha, prior.theta_beta]
    whole = attend(q, k, v, prior, ssmax=temper, kernel="dense", **options)[:, :, list(chosen)]
    found = attend(some, k, v, prior, ssmax=temper, kernel=kernel, rows=chosen, **options)
    torch.testing.assert_close(found, whole, rtol=1e-9, atol=1e-10)
    wanted = torch.autograd.grad(whole, leaves, grad)
    for ours, full in zip(torch.autograd.grad(found, leaves, grad), wanted, strict=True):
        torch.testing.assert_close(ours, full, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("rows", ROWS)
@torch.no_grad()
def test_with_flex_decomposed_and_certified(rows):
    chosen = list(ROWS[rows])
    q, some, k, v, _, _ = cut(chosen, "causal", torch.float32)
    prior = ggd(4, 0.5, torch.float32)
    whole = attend(q, k, v, prior, decompose=True)
    found = attend(some, k, v, prior, decompose=True, rows=chosen)
    for ours, full in zip(found, whole, strict=True):
        torch.testing.assert_close(ours, full[:, :, chosen])
    output = whole.output[:, :, chosen]
    flex = attend(some, k, v, prior, kernel="flex", rows=chosen)
    torch.testing.assert_close(flex, output, rtol=1e-4, atol=1e-5)
    close = attend(some, k, v, prior, tolerance=1e-3, rows=chosen)
    assert ((close.output - output).abs().amax((2, 3)) <= close.bound).all()
    exact = attend(some, k, v, None, rows=chosen)
    torch.testing.assert_close(exact, attend(q, k, v)[:, :, chosen], rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_the_others_are_not_computed(monkeypatch):
    counted = count_pairs(monkeypatch)
    q, k, v, _ = Scene(batch=1, queries=600, keys=600).tensors(torch.float32)
    rows = [*range(200, 210), *range(400, 420)]
    attend(q[:, :, rows], k, v, ggd(4, 0.1, torch.float32), rows=rows)
    assert counted["forward"] == 4 * (10 * 210 + 20 * 420)
