"""Thousands of calls of attend: finite in, finite out, and what the definition says."""

import math
from collections import Counter

import pytest
import torch

from bayesattn.attention import attend, posterior
from bayesattn.priors import Laplace
from tests.attention.scenes import small_chunks
from tests.robust.calls import Call, allowed, some_call
from tests.robust.common import count

PARTS = 10
CALLS = count(2000, 10_000)
SPOILT = count(600, 3000)


def output_of(found):
    return found if isinstance(found, torch.Tensor) else found.output


def compare(call: Call) -> str:
    """What was compared; AssertionError with the whole call if it differs."""
    wanted = call.definition()
    found = call.run()
    out, bound = output_of(found), allowed(call)
    assert bool(out.isfinite().all()), call
    if "tolerance" in call.more:
        bound = bound + found.bound.double()[..., None, None]
    error = (out.detach().double() - wanted).abs()
    assert bool((error <= bound).all()), (float(error.max()), call)
    if call.grad and out.requires_grad and bool((call.q.abs() < 1e5).all()):
        grads = torch.autograd.grad(out.sum(), (call.q, call.k, call.v), allow_unused=True)
        largest = float(call.v.detach()[:, :, : call.end].abs().max())
        if largest < 1e6:
            for grad in grads:
                assert grad is None or bool(grad.isfinite().all()), ("gradient", call)
    return call.more["kernel"] + (", gradients" if call.grad else "")


@pytest.mark.parametrize("part", range(PARTS))
def test_finite_calls_are_the_definition(part, monkeypatch):
    seen = Counter()
    for seed in range(part, CALLS, PARTS):
        call = some_call(seed)
        with monkeypatch.context() as patch:
            if call.chunk is not None:
                small_chunks(patch, call.chunk)
            if not call.huge:  # kernels manage what is of ordinary size by themselves
                patch.setattr(posterior, "_again", None)
            seen[compare(call)] += 1
    assert len(seen) >= 8, seen  # four kernels, with gradients and without


def spoil(call: Call, seed: int) -> torch.Tensor:
    """Put NaN or infinity into one entry; [B, H, T] the rows that read it."""
    draw = torch.Generator().manual_seed(seed)

    def pick(n: int) -> int:
        return int(torch.randint(n, (), generator=draw))

    name, value = "qkv"[pick(3)], (math.nan, math.inf, -math.inf)[pick(3)]
    x = getattr(call, name).detach().clone()
    place = (pick(x.shape[0]), pick(x.shape[1]), pick(min(x.shape[2], call.end)), pick(x.shape[3]))
    # which rows read an entry: those that a change of its value, or of its query, moves
    batch, heads, length, _ = call.q.shape
    rows = torch.zeros(batch, heads, length, dtype=torch.bool)
    group = heads // call.k.shape[1]
    names = ("documents", "padding", "offset", "rows", "window")
    more = {n: call.more[n] for n in names if n in call.more}
    with torch.no_grad():
        zeros = torch.zeros(batch, heads, length, 1, dtype=torch.float64)
        ones = torch.zeros(batch, call.k.shape[1], call.k.shape[2], 1, dtype=torch.float64)
        keys = ones.clone()
        if name == "q":
            ones += 1
            mean = attend(zeros, keys, ones, kernel="dense", **more)[..., 0] > 0
            rows[place[0], place[1], place[2]] = mean[place[0], place[1], place[2]]
        else:
            ones[place[0], place[1], place[2]] = 1
            mean = attend(zeros, keys, ones, kernel="dense", **more)[..., 0] > 0
            some = slice(place[1] * group, (place[1] + 1) * group)
            rows[place[0], some] = mean[place[0], some]
    x[place] = value
    setattr(call, name, x.requires_grad_(call.grad))
    return rows


@pytest.mark.parametrize("part", range(PARTS))
def test_rows_that_read_nan_or_infinity_are_nan_and_no_others(part):
    touched = 0
    for seed in range(part, SPOILT, PARTS):
        call = some_call(10**6 + seed, ordinary=True)
        if call.q.shape[2] == 1 and call.end > 1:
            continue  # decoding: see the next test
        clean, bound = call.definition(), allowed(call)
        if "tolerance" in call.more:
            bound = bound + call.run().bound.double()[..., None, None]
        rows = spoil(call, seed)
        out = output_of(call.run()).detach()
        assert bool(out[rows].isnan().all()), call
        error = ((out.double() - clean).abs() <= bound)[~rows]
        assert bool(error.all()), call
        touched += bool(rows.any())
    assert touched > SPOILT / PARTS / 3


def test_in_decoding_only_infinite_keys_of_before_go_unnoticed():
    found = Counter()
    for seed in range(count(150, 1000)):
        call = some_call(2 * 10**6 + seed, ordinary=True)
        end = call.end
        call.q = call.q[:, :, -1:].detach()
        call.k, call.v = (x.detach()[:, :, :end] for x in (call.k, call.v))
        for name in ("rows", "offset"):
            call.more.pop(name, None)
        call.grad = False
        rows = spoil(call, seed)
        out = output_of(call.run())
        if not bool(call.k[:, :, :-1].isinf().any()):
            assert bool(out[rows].isnan().all()), call
            found["checked"] += bool(rows.any())
    assert found["checked"] > 50


@pytest.mark.parametrize("prior", [None, Laplace(2)])
def test_an_infinite_newest_key_shows_in_decoding(prior):
    q, k, v = torch.ones(1, 2, 1, 4), torch.ones(1, 2, 9, 4), torch.ones(1, 2, 9, 4)
    k[:, :, -1] = -math.inf  # its score is -inf, as if it were hidden
    assert attend(q, k, v, prior).isnan().all()


STEEP = {"prior": Laplace(2, slopes=[2.0, 2.0])}
SKIPPING = {
    "strided": STEEP,
    "certified": {"tolerance": 1e-6, **STEEP},
    "gates": {"forget": torch.full((1, 2, 400), -2.0)},
}


@pytest.mark.parametrize("name", ["k", "v"])
@pytest.mark.parametrize("way", SKIPPING)
def test_what_is_skipped_is_looked_at(way, name, monkeypatch):
    small_chunks(monkeypatch, 16)
    draw = torch.Generator().manual_seed(0)
    inputs = dict(zip("qkv", torch.randn(3, 1, 2, 400, 8, generator=draw), strict=True))
    inputs["q"] = inputs["q"][:, :, -100:]  # all of them far from the key
    clean = output_of(attend(**inputs, **SKIPPING[way], kernel="strided"))
    inputs[name][0, 1, 0, 3] = math.nan
    found = output_of(attend(**inputs, **SKIPPING[way], kernel="strided"))
    assert found[:, 1].isnan().all()  # even rows to which that key is 800 below the nearest
    torch.testing.assert_close(found[:, 0], clean[:, 0])
