"""Certified skipping: the true error stays below the bound, and keys really are skipped."""

import pytest
import torch

from bayesattn import attend
from bayesattn.priors import GeneralizedGaussian, Laplace
from tests.attention.scenes import Scene, count_pairs, ggd, ssmax

RULES = {
    "causal": {},
    "padding": {"padding": torch.tensor([0, 300])},
    "documents": {"documents": torch.arange(900).expand(2, -1) // 500},
    "window": {"window": 600},
    "exempt": {"exempt": 40},
    "exempt, window, padding": {"exempt": 40, "window": 600, "padding": torch.tensor([9, 0])},
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("scope", [None, "content", "content+prior", "horizon"])
def test_error_is_below_the_bound(scope, rule):
    scene = Scene(groups=2, queries=900, keys=900, visibility=RULES[rule])
    q, k, v, _ = scene.tensors()
    prior, temper = ggd(4, 0.9), ssmax(4, scope)
    with torch.no_grad():
        exact = attend(q, k, v, prior, ssmax=temper, kernel="dense", **scene.visibility)
        for tolerance in (1e-2, 1e-8):
            found = attend(q, k, v, prior, ssmax=temper, tolerance=tolerance, **scene.visibility)
            error = (found.output - exact).abs().amax((2, 3))
            assert (error <= found.bound).all()
            width = float(v.amax() - v.amin())
            assert found.bound.max() <= tolerance * width + 1e-10


CHUNKS = {
    "causal": {},
    "padding": {"padding": torch.tensor([0, 640])},
    "all padding before the chunk": {"padding": torch.tensor([250, 600])},
    "documents": {"documents": torch.arange(900).expand(2, -1) // 350},
    "window": {"window": 500},
    "exempt, window, padding": {"exempt": 40, "window": 600, "padding": torch.tensor([9, 0])},
    "static cache": {"offset": 400},
}


@pytest.mark.parametrize("rule", CHUNKS)
@pytest.mark.parametrize("scope", [None, "content", "content+prior", "horizon"])
@pytest.mark.parametrize("queries", [300, 1])
def test_a_chunk_after_a_cache_is_below_the_bound(queries, scope, rule, monkeypatch):
    counted = count_pairs(monkeypatch)
    scene = Scene(groups=2, queries=queries, keys=900, visibility=CHUNKS[rule])
    q, k, v, _ = scene.tensors()
    prior, temper = ggd(4, 0.9), ssmax(4, scope)
    with torch.no_grad():
        exact = attend(q, k, v, prior, ssmax=temper, kernel="dense", **scene.visibility)
        found = attend(q, k, v, prior, ssmax=temper, tolerance=1e-6, **scene.visibility)
    error = (found.output - exact).abs().amax((2, 3))
    assert (error <= found.bound).all()
    assert found.bound.max() <= 1e-6 * float(v.amax() - v.amin()) + 1e-10
    if rule == "causal" and queries > 1:
        assert counted["forward"] < 8 * queries * 900 * 0.8, "nothing was skipped"


def test_chunks_give_what_the_whole_gives():
    q, k, v, _ = Scene(queries=700, keys=700).tensors()
    prior, temper = ggd(4, 0.9), ssmax(4, "content+prior")
    with torch.no_grad():
        exact = attend(q, k, v, prior, ssmax=temper, kernel="dense")
        for start, stop in ((0, 64), (64, 390), (390, 391), (391, 700)):
            keys, rows = slice(0, stop), slice(start, stop)
            chunk = (q[:, :, rows], k[:, :, keys], v[:, :, keys])
            found = attend(*chunk, prior, ssmax=temper, tolerance=1e-6)
            error = (found.output - exact[:, :, rows]).abs().amax((2, 3))
            assert (error <= found.bound).all() and error.max() < 1e-5


def test_adversarial_keys_are_not_skipped():
    """A far key that holds the posterior in spite of the prior has to be found."""
    q, k, v, _ = Scene(batch=1, heads=8, groups=8, queries=600, keys=600).tensors()
    q[:, :, 500:] *= 40
    k[:, :, 3] = q[:, :, 599] / 2
    with torch.no_grad():
        exact = attend(q, k, v, Laplace(8).double(), kernel="dense")
        found = attend(q, k, v, Laplace(8).double(), tolerance=1e-3)
    assert ((found.output - exact).abs().amax((2, 3)) <= found.bound).all()
    plan = attend(q, k, v, Laplace(8).double(), decompose=True).posterior
    assert plan[0, :, 599, 3].max() > 0.5, "the test has no power: nobody looks at the far key"


@pytest.mark.parametrize("beta", [1.0, -0.3])
def test_local_heads_skip_and_far_heads_do_not(beta, monkeypatch):
    counted = count_pairs(monkeypatch)
    q, k, v, _ = Scene(batch=1, heads=1, groups=1, queries=2048, keys=2048).tensors()
    prior = GeneralizedGaussian(1).double()
    with torch.no_grad():
        prior.theta_beta.fill_(beta)
        attend(q, k, v, prior, tolerance=1e-6)
    everything = 2048 * 2048 / 2
    assert counted["forward"] >= everything if beta < 0 else counted["forward"] < everything / 2


@pytest.mark.parametrize(
    "change, message",
    [
        ({"tolerance": 0.0}, "between 0 and 1"),
        ({"tolerance": 1.5}, "between 0 and 1"),
        ({"tolerance": 1e-3, "kernel": "dense"}, "without gradients"),
        ({"tolerance": 1e-3, "decompose": True}, "leave tolerance out"),
    ],
)
def test_refusals(change, message):
    q, k, v, _ = Scene().tensors()
    with torch.no_grad(), pytest.raises(ValueError, match=message):
        attend(q, k, v, ggd(4, 1.0), **change)


def test_never_with_gradients():
    q, k, v, _ = Scene().tensors()
    with pytest.raises(ValueError, match="without gradients"):
        attend(q, k, v, ggd(4, 1.0), tolerance=1e-3)
