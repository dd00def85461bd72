"""Skipping changes nothing: outputs and gradients with it, without it and by the definition."""

import pytest
import torch

from bayesattn import SSMax, attend
from bayesattn.attention.kernels.strided import backward, forward, plan, runs
from bayesattn.priors import Bucketed, GeneralizedGaussian, Laplace
from tests.attention.scenes import (
    Scene,
    assert_same,
    count_pairs,
    distance,
    everything,
    small_chunks,
)

LENGTH, CHUNK = 200, 8


@pytest.fixture(autouse=True)
def chunks(monkeypatch):
    small_chunks(monkeypatch, CHUNK)
    monkeypatch.setattr(forward, "_DIAGONAL", 16)
    monkeypatch.setattr(forward, "_BLOCKS", (48, 48))
    monkeypatch.setattr(forward, "_FAR", 24)
    monkeypatch.setattr(backward, "tile_shape", lambda end, reach: (16, 40))


@pytest.fixture
def pairs(monkeypatch):
    return count_pairs(monkeypatch)


class Changed(Scene):
    """Random tensors, changed in place by `change`."""

    change = None

    def tensors(self, dtype=torch.float64):
        q, k, v, grad = super().tensors(torch.float64)
        self.change(q, k, v)
        return tuple(x.float().to(dtype) for x in (q, k, v, grad))  # one float32 problem for all


def scene(change=lambda q, k, v: None, groups=4, batch=1, queries=LENGTH, **visibility):
    made = Changed(batch=batch, groups=groups, queries=queries, keys=LENGTH, visibility=visibility)
    object.__setattr__(made, "change", change)
    return made


def without(made):
    return scene(
        made.change,
        made.groups,
        made.batch,
        made.queries,
        **made.visibility,
        skip=False,
    )


def mixed(dtype, order=(0, 1, 2, 3)):
    """A steep head, two slower ones and a uniform one, in some order."""
    prior = GeneralizedGaussian(4)
    beta, alpha = torch.tensor([1.0, 1.0, 0.9, 0.0]), torch.tensor([1.2, 0.7, 0.5, 0.1])
    with torch.no_grad():
        prior.theta_beta.copy_(beta[list(order)])
        prior.theta_alpha.copy_(alpha[list(order)])
    return prior.to(dtype)


def ssmax(name, dtype):
    made = {
        "none": lambda: None,
        "content+prior": lambda: SSMax(4, init=0.7),
        "content": lambda: SSMax(4, init=0.7, scope="content"),
        "horizon": lambda: SSMax(4, init=0.7, horizon=24),
        "negative": lambda: SSMax(4, init=-0.05),
    }[name]()
    return None if made is None else made.to(dtype)


def compare(made, prior=mixed, temper="none"):
    """With skipping, without it, and by the definition.

    In float32; and in float64 with what float32 may miss, which shows the error of skipping alone.
    """
    wide, single = torch.float64, torch.float32
    bare = {n: x for n, x in made.visibility.items() if n != "skip"}
    definition = scene(made.change, made.groups, made.batch, made.queries, **bare)
    wanted = everything(definition, prior(wide), ssmax(temper, wide), "dense", wide)
    full = everything(without(made), prior(single), ssmax(temper, single), "strided", single)
    found = everything(made, prior(single), ssmax(temper, single), "strided", single)
    assert_same(found, wanted, 2e-5, full)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "epsilon", lambda dtype: 2.0**-26)
        alone = everything(made, prior(wide), ssmax(temper, wide), "strided", wide)
    assert_same(alone, wanted, 2.0**-24)


def spikes(q, k, v):
    """Far keys that match queries at both edges of blocks, some of them above the prior."""
    for row, key, strength in ((199, 48, 200), (192, 55, 150), (191, 63, 30), (120, 56, 70)):
        q[:, :, row] *= 4 / q[:, :, row].norm(dim=-1, keepdim=True)
        k[:, :, key] = q[:, : k.shape[1], row] * strength * 8**0.5 / 16


CONTENT = {
    "plain": lambda q, k, v: None,
    "large": lambda q, k, v: (q.mul_(5), k.mul_(5)),
    "one huge key": lambda q, k, v: k[:, :, 41].mul_(300),
    "huge values far away": lambda q, k, v: v[:, :, 40:48].mul_(1e6),
    "small values near": lambda q, k, v: v[:, :, 120:].mul_(1e-6),
    "spikes": spikes,
    "own key is worst": lambda q, k, v: k.copy_(-2 * q[:, : k.shape[1]]),
    "no keys": lambda q, k, v: k.zero_(),
}
DOCUMENTS = (torch.arange(LENGTH) > 110).long().expand(2, -1)
PLACES = {
    "window": {"window": 60},
    "exempt": {"exempt": 5},
    "exempt in a window": {"exempt": 30, "window": 90},
    "padding": {"batch": 2, "padding": torch.tensor([0, 77])},
    "padding alike": {"batch": 3, "padding": torch.tensor([30, 0, 30])},
    "documents": {"batch": 2, "documents": DOCUMENTS},
    "documents, exempt": {"batch": 2, "documents": DOCUMENTS, "exempt": 9},
    "grouped": {"groups": 2},
    "one group, exempt": {"groups": 1, "exempt": 4},
    "last queries": {"queries": 90},
    "last queries, exempt": {"queries": 67, "exempt": 3},
    "static cache": {"queries": 50, "offset": 101},
}
TEMPERS = ["none", "content", "content+prior", "horizon", "negative"]


@pytest.mark.parametrize("temper", TEMPERS)
@pytest.mark.parametrize("content", CONTENT)
def test_adversarial_content(content, temper, pairs):
    compare(scene(CONTENT[content]), temper=temper)
    assert pairs["flat"] > 0


def test_spikes_matter(generator):
    """The test of adversarial content has power: far keys win their rows."""
    made = scene(spikes)
    q, k, v, _ = made.tensors(torch.float32)
    posterior = attend(q, k, v, mixed(torch.float32), decompose=True).posterior
    assert (posterior[0, :3, 199, 48] > 0.9).any() and (posterior[0, :3, 192, 55] > 0.9).any()


@pytest.mark.parametrize(
    "row, key", [(199, 40), (199, 47), (192, 40), (192, 47), (120, 8), (127, 15)]
)
@pytest.mark.parametrize("nats", [-30, -24, -18, -12, -6, 0, 6])
def test_a_far_key_that_beats_the_prior_by_a_margin(row, key, nats):
    """From a share below rounding to nearly all of the row, at both edges of blocks and chunks."""
    slope = 0.7

    def change(q, k, v):
        q[:, :, row] *= 4 / q[:, :, row].norm(dim=-1, keepdim=True)
        k[:, :, key] = q[:, :, row] * (slope * (row - key) + nats) * 8**0.5 / 16

    compare(scene(change), lambda dtype: Laplace(4, learned=True, slopes=[slope] * 4).to(dtype))


@pytest.mark.parametrize("temper", ["none", "content+prior", "horizon"])
@pytest.mark.parametrize("place", PLACES)
def test_wherever_keys_are(place, temper):
    compare(scene(**PLACES[place]), temper=temper)


@pytest.mark.parametrize("order", [(3, 0, 3, 1), (0, 3, 1, 3), (3, 3, 3, 3), (0, 0, 0, 0)])
@pytest.mark.parametrize("groups", [2, 4])
@pytest.mark.parametrize("temper", ["none", "content+prior"])
def test_heads_in_any_order(order, groups, temper):
    compare(scene(groups=groups), lambda dtype: mixed(dtype, order), temper)


@pytest.mark.parametrize("beta", [-0.6, -3.0, 2.0, 3.0])
@pytest.mark.parametrize("temper", ["none", "content+prior"])
def test_shapes(beta, temper):
    def prior(dtype):
        made = mixed(dtype)
        with torch.no_grad():
            made.theta_beta.copy_(torch.tensor([beta, 1.0, beta, 0.5]))
        return made

    compare(scene(), prior, temper)


def test_a_prior_that_peaks_far_away():
    def prior(dtype):
        made = GeneralizedGaussian(4, init="alibi", learn_mu=True)
        with torch.no_grad():
            made.theta_mu.fill_(-3.0)  # at distance 20
            made.theta_alpha.fill_(1.0)
        return made.to(dtype)

    compare(scene(), prior)


def test_a_prior_with_a_step_and_a_bump():
    def prior(dtype):
        made = Bucketed(4, num_buckets=8, max_distance=64)
        with torch.no_grad():
            made.theta_bucket[:, 4:] = -60
            made.theta_bucket[1, 7] = 0
        return made.to(dtype)

    compare(scene(), prior)


@pytest.mark.parametrize("fixed", ["prior", "ssmax", "both"])
@pytest.mark.parametrize("scope", ["content", "content+prior"])
def test_what_is_fixed_needs_no_gradient(fixed, scope):
    """Uniform heads then take torch's own backward pass, from an offset, too."""
    for queries in (LENGTH, 90):
        results = []
        for kernel, dtype in (("dense", torch.float64), ("strided", torch.float32)):
            prior = mixed(dtype)
            temper = SSMax(4, init=0.7, scope=scope).to(dtype)
            for module in {"prior": [prior], "ssmax": [temper], "both": [prior, temper]}[fixed]:
                module.requires_grad_(False)
            results.append(everything(scene(queries=queries), prior, temper, kernel, dtype))
        assert_same(results[1], results[0], 5e-5)


def test_bfloat16():
    q, k, v, grad = (x.requires_grad_() for x in scene().tensors(torch.bfloat16))
    prior = mixed(torch.float32)
    found = []
    for skip in (True, False):
        out = attend(q, k, v, prior, ssmax=SSMax(4), skip=skip, kernel="strided")
        found.append([out, *torch.autograd.grad(out, [q, k, v, prior.theta_beta], grad)])
    for one, other in zip(*found, strict=True):
        # rounding of the output alone moves a prior's gradient by a twentieth in bfloat16
        assert (one - other).abs().max() <= 2**-5 * other.abs().max()


def test_not_a_number_is_not_skipped():
    q, k, v, _ = scene().tensors(torch.float32)
    v[:, :, 3] = torch.nan
    for skip in (True, False):
        out = attend(q, k, v, mixed(torch.float32), kernel="strided", skip=skip)
        assert out[:, :, 3:].isnan().all()


def test_local_heads_cost_their_window(pairs):
    """In both passes, pairs grow with the length and not with its square."""
    counts = {}
    for length in (400, 800):
        pairs.update(forward=0, backward=0)
        q, k, v = (torch.randn(1, 2, length, 8).mul_(0.3).requires_grad_() for _ in range(3))
        attend(q, k, v, Laplace(2, slopes=[3.0, 2.0]), kernel="strided").sum().backward()
        counts[length] = dict(pairs)
    for name in ("forward", "backward"):
        assert counts[800][name] < 2.2 * counts[400][name] < 400 * 400


def test_everything_is_computed_without_skipping(pairs):
    q, k, v, _ = scene().tensors(torch.float32)
    prior = mixed(torch.float32)
    attend(q.requires_grad_(), k, v, prior, kernel="strided", skip=False).sum().backward()
    assert pairs["flat"] == 0
    assert min(pairs["forward"], pairs["backward"]) >= 4 * LENGTH**2 / 2
    pairs.update(forward=0, backward=0)
    attend(q, k, v, prior, kernel="strided").sum().backward()
    assert pairs["flat"] == LENGTH**2  # one head
    assert pairs["forward"] < 3 * LENGTH**2 / 4


@pytest.mark.parametrize("length", [900, 2300])
@pytest.mark.parametrize("temper", ["none", "content+prior"])
def test_at_its_own_sizes(length, temper, monkeypatch):
    monkeypatch.undo()
    assert runs._WORTH <= 900
    made = Scene(batch=1, groups=2, queries=length, keys=length)
    wanted = everything(made, mixed(torch.float64), ssmax(temper, torch.float64), "dense",
                        torch.float64)  # fmt: skip
    prior, temper = mixed(torch.float32), ssmax(temper, torch.float32)
    found = everything(made, prior, temper, "strided", torch.float32)
    off = Scene(batch=1, groups=2, queries=length, keys=length, visibility={"skip": False})
    whole = everything(off, prior, temper, "strided", torch.float32)
    if temper is not None:  # a sum over all pairs, most of which cancels: as the definition's is
        assert distance(found.pop("ssmax"), wanted.pop("ssmax")) < 3e-5
        whole.pop("ssmax")
    assert_same(found, wanted, 3e-6, whole)
