"""What a plan leaves out holds less than rounding, in every row, against the definition."""

import math

import pytest
import torch

from bayesattn import SSMax
from bayesattn.attention.kernels import dense
from bayesattn.attention.kernels.strided.heads import Keys, cheapest, shares
from bayesattn.attention.kernels.strided.plan import plan
from bayesattn.attention.terms import Terms
from bayesattn.attention.visibility import Visibility
from bayesattn.priors import GeneralizedGaussian, Laplace
from tests.attention.scenes import small_chunks

CHUNK, LENGTH, WIDTH = 16, 320, 8
EPSILON = 2.0**-26


@pytest.fixture(autouse=True)
def chunks(monkeypatch):
    small_chunks(monkeypatch, CHUNK)


def draw(generator, heads=4, groups=4, batch=1, queries=LENGTH):
    q = torch.randn(batch, heads, queries, WIDTH, generator=generator)
    k, v = torch.randn(2, batch, groups, LENGTH, WIDTH, generator=generator)
    return q, k, v


def terms_of(q, prior, ssmax=None, **seen):
    """Those of the only run, and of the whole."""
    whole = Terms.of(q, prior, ssmax, Visibility(q.shape[2], LENGTH - q.shape[2], None, **seen))
    with torch.no_grad():
        whole = whole._replace(
            **{n: x.detach() for n, x in whole._asdict().items() if isinstance(x, torch.Tensor)}
        )
    group = whole.seen.groups()[0]
    return whole.at(group, group.runs[0]), whole


def kept(terms, found):
    """[H, T, S] the keys that are computed."""
    seen = terms.seen
    mask = torch.zeros(len(terms.table), seen.num_queries, seen.end, dtype=torch.bool)
    for share in shares(terms, found):
        for a in range(seen.offset, seen.end, CHUNK):
            b = min(a + CHUNK, seen.end)
            ranges = share.keys.ranges(a, b)
            assert ranges[-1][1] == b
            for lo, hi in ranges:
                part = torch.zeros(seen.end, dtype=torch.bool)
                part[lo:hi] = True
                mask[share.heads, a - seen.offset : b - seen.offset] |= part
    return mask


def left_out(q, k, v, terms, whole, found, weighted=True):
    """The largest weighted share that a row misses, and how many pairs are left out."""
    wide = whole._replace(
        **{n: x.double() for n, x in whole._asdict().items() if isinstance(x, torch.Tensor)}
    )
    share = dense.posterior(q.double(), k.double(), wide)
    out = ~kept(terms, found) & whole.seen.mask(q.device)[0]
    if weighted:
        log_prior, _ = dense.prior_and_mask(wide, q)
        top = wide.table.amax(1)[:, None, None]
        top = top if wide.temper is None else top * wide.temper[..., None]
        share = share * (1 + (log_prior - top).abs())
        for x in (k, v):
            sizes = x.double().norm(dim=-1).repeat_interleave(q.shape[1] // x.shape[1], 1)
            beside = torch.stack(
                [
                    sizes[..., a : a + CHUNK].mean(-1)
                    for a in range(whole.seen.offset, LENGTH, CHUNK)
                ],
                -1,
            ).repeat_interleave(CHUNK, -1)[..., : whole.seen.num_queries]
            share = share * (sizes[:, :, None] / beside[..., None]).nan_to_num(1.0).clamp(min=1)
    return float((share * out).sum(-1).max()), int(out.sum())


CONTENT = {
    "plain": lambda q, k, v: None,
    "large queries": lambda q, k, v: q.mul_(6),
    "one large key": lambda q, k, v: k[:, :, 37].mul_(30),
    "large keys at edges": lambda q, k, v: k[:, :, [15, 16, 63, 64, 255]].mul_(12),
    "many large keys": lambda q, k, v: k[:, :, ::40].mul_(20),
    "large values": lambda q, k, v: v[:, :, 40:45].mul_(1e9),
    "small values late": lambda q, k, v: v[:, :, 200:].mul_(1e-9),
    "keys grow": lambda q, k, v: k.mul_(torch.linspace(0.01, 4, LENGTH)[:, None]),
    "keys shrink": lambda q, k, v: k.mul_(torch.linspace(4, 0.01, LENGTH)[:, None]),
    "own key is worst": lambda q, k, v: k.copy_(-q[:, : k.shape[1], -LENGTH:]),
    "no keys": lambda q, k, v: k.zero_(),
    "no values": lambda q, k, v: v.zero_(),
}
SSMAX = {
    "none": lambda heads: None,
    "content+prior": SSMax,
    "content": lambda heads: SSMax(heads, scope="content"),
    "horizon": lambda heads: SSMax(heads, horizon=32),
}


@pytest.mark.parametrize("ssmax", SSMAX)
@pytest.mark.parametrize("content", CONTENT)
def test_less_than_rounding_is_left_out(content, ssmax, generator):
    q, k, v = draw(generator)
    CONTENT[content](q, k, v)
    terms, whole = terms_of(q, Laplace(4, slopes=[4.0, 2.0, 1.0, 0.5]), SSMAX[ssmax](4))
    exact = dense.posterior(q.double(), k.double(), whole)
    evidence = torch.logsumexp(scores(q, k, whole), -1).float()
    assert torch.allclose(exact.sum(-1), torch.ones(()).double())
    for known in (None, evidence):
        found = plan(q, k, v, terms, known)
        if found is None:
            continue
        mass, count = left_out(q, k, v, terms, whole, found)
        assert mass <= EPSILON * 1.001
        assert count > 0 or content in ("large queries", "own key is worst")
        assert (found.missed <= math.log(EPSILON) + 1e-3).all()


def scores(q, k, whole):
    log_prior, visible = dense.prior_and_mask(whole, q)
    content = whole.heat(q).double() @ k.double().transpose(-1, -2) * whole.scale
    return (content + log_prior).masked_fill(~visible, -math.inf)


@pytest.mark.parametrize("place", ["offset", "offset in a chunk", "window", "exempt", "grouped"])
def test_wherever_the_queries_are(place, generator):
    queries = {"offset": 160, "offset in a chunk": 151}.get(place, LENGTH)
    q, k, v = draw(generator, groups=2 if place == "grouped" else 4, queries=queries, batch=2)
    k[1, :, 100] *= 9
    seen = {"window": {"window": 90}, "exempt": {"exempt": 21}}.get(place, {})
    terms, whole = terms_of(q, Laplace(4, slopes=[4.0, 2.0, 1.0, 0.7]), SSMax(4), **seen)
    found = plan(q, k, v, terms)
    k, v = (x.repeat_interleave(4 // x.shape[1], 1) for x in (k, v))
    mass, count = left_out(q, k, v, terms, whole, found)
    assert mass <= EPSILON * 1.001
    assert count > 0.1 * whole.seen.mask(q.device).sum()
    if place == "exempt":
        assert kept(terms, found)[:, 32:, :21].all()


@pytest.mark.parametrize("place", [48, 55, 63])
def test_a_far_key_that_beats_the_prior_by_the_margin(place, generator):
    """Its share in the last row runs from all to nothing; it is left out where it is below ε."""
    slope, decided = 0.5, set()
    prior = Laplace(4, slopes=[slope] * 4)
    for nats in range(-70, 20, 2):
        q, k, v = draw(generator)
        q, k = q * 0.1, k * 0.1
        row = LENGTH - 1
        direction = q[:, :, row] / q[:, :, row].norm(dim=-1, keepdim=True)
        q[:, :, row] = direction * 8
        score = slope * (row - place) + nats
        k[:, :, place] = direction * score * WIDTH**0.5 / 8
        terms, whole = terms_of(q, prior)
        found = plan(q, k, v, terms)
        share = dense.posterior(q.double(), k.double(), whole)[0, :, row, place]
        seen = kept(terms, found)[:, row, place]
        assert (seen | (share <= EPSILON)).all()
        decided |= set(seen.tolist())
    assert decided == {True, False}


def test_only_the_chunk_of_a_large_key_is_taken_along(generator):
    q, k, v = draw(generator)
    k[:, :, 37] *= 1000
    terms, _ = terms_of(q, Laplace(4, slopes=[4.0] * 4))
    mask = kept(terms, plan(q, k, v, terms))
    assert mask[:, -1, 32:48].all()
    assert not mask[:, -1, 64:160].any() and not mask[:, -1, :32].any()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("which", range(3))
def test_what_is_not_finite_is_kept(which, bad, generator):
    tensors = draw(generator)
    tensors[which][:, :, 37] = bad
    terms, _ = terms_of(tensors[0], Laplace(4, slopes=[4.0] * 4))
    mask = kept(terms, plan(*tensors, terms))
    causal = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    rows, keys = (slice(37, 38), slice(None)) if which == 0 else (slice(None), slice(37, 38))
    assert mask[:, rows, keys][:, causal[rows, keys]].all()


@pytest.mark.parametrize("beta", [-2.0, -0.6, 0.0, 0.05])
def test_heads_that_look_far_are_not_judged(beta, generator):
    q, k, v = draw(generator)
    prior = GeneralizedGaussian(4)
    with torch.no_grad():
        prior.theta_beta.fill_(beta)
    terms, _ = terms_of(q, prior)
    assert plan(q, k, v, terms) is None


def test_negative_temperatures_keep_everything(generator):
    q, k, v = draw(generator)
    terms, _ = terms_of(q, Laplace(4, slopes=[4.0] * 4), torch.tensor([-1.0, 1.0, -0.5, 1.0]))
    mask = kept(terms, plan(q, k, v, terms))
    causal = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    assert mask[[0, 2]][:, causal].all()
    assert not mask[[1, 3]][:, causal].all()


def test_ranges_of_several_blocks_are_joined():
    """The range of one block may begin before a chunk apart of the next."""
    seen = Visibility(64, exempt=5)
    keys = Keys(seen, [0, 0, 10, 40], {3: [(16, 32)]})
    assert keys.ranges(32, 64) == [(0, 5), (10, 64)]
    assert keys.ranges(48, 64) == [(0, 5), (16, 32), (40, 64)]
    narrow = Keys(Visibility(64, window=30), [0, 0, 10, 40], {3: [(16, 32)]})
    assert narrow.ranges(48, 64) == [(19, 32), (40, 64)]
    assert Keys(seen).ranges(48, 64) == [(0, 64)]


def test_groups_are_thecheapest():
    reach = [10.0, 12.0, 500.0, 520.0]
    order = sorted(range(4), key=lambda h: reach[h])
    assert sorted(map(sorted, cheapest(order, reach))) == [[0, 1], [2, 3]]
    assert cheapest([0], reach) == [[0]]
    assert len(cheapest(order, [1.0, 2.0, 3.0, 4.0])) == 1
