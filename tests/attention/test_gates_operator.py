"""What the operator of forget gates owes torch, and what it leaves out."""

import threading
import time

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from bayesattn import attend
from bayesattn.attention.kernels.gated import _gated, gated, parts, reach
from bayesattn.attention.terms import Terms
from bayesattn.attention.visibility import Visibility
from tests.attention.scenes import Scene, count_pairs, distance, everything, gates, ggd, ssmax
from tests.attention.test_gates import SINK
from tests.attention.test_strided import resident


@pytest.mark.parametrize("full", [False, True])
def test_registration(full):
    scene = Scene(groups=2)
    q, k, v, _ = (x.requires_grad_() for x in scene.tensors(torch.float32))
    decay = gates(scene).cumsum(-1).requires_grad_()
    table = ggd(4, 0.5, torch.float32).table(21).detach().requires_grad_() if full else None
    temper = torch.rand(2, 4, 21, requires_grad=True) if full else None
    sink = SINK.float().requires_grad_() if full else None
    first = torch.zeros(2, 21, dtype=torch.int64) if full else None
    args = (q, k, v, table, temper, decay, sink, first, 0, None, 2 * full, 0.3, True)
    torch.library.opcheck(_gated, args, atol=1e-4, rtol=1e-4)


def test_torch_compile_passes_through():
    scene, padding = Scene(), torch.tensor([0, 5])
    forget, temper = gates(scene).float(), ssmax(4, "content+prior", torch.float32)

    def run(q, k, v, forget):
        return attend(q, k, v, ssmax=temper, forget=forget, sink=SINK.float(), padding=padding)

    compiled = torch.compile(run, backend="aot_eager", fullgraph=True)
    results = []
    for function in (run, compiled):
        q, k, v, grad = (x.requires_grad_() for x in scene.tensors(torch.float32))
        gate = forget.clone().requires_grad_()
        out = function(q, k, v, gate)
        out.backward(grad)
        results.append((out, q.grad, k.grad, v.grad, gate.grad))
    for eager, traced in zip(*results, strict=True):
        assert torch.allclose(eager, traced, atol=1e-6)


def test_gradient_checkpointing_passes_through():
    grads = []
    for wrap in (lambda f, *x: f(*x), lambda f, *x: checkpoint(f, *x, use_reentrant=False)):
        q, k, v, grad = (x.requires_grad_() for x in Scene().tensors())
        gate = gates(Scene()).requires_grad_()
        wrap(lambda *x: attend(*x[:3], forget=x[3], kernel="strided"), q, k, v, gate).backward(grad)
        grads.append((q.grad, gate.grad))
    for plain, wrapped in zip(*grads, strict=True):
        assert torch.equal(plain, wrapped)


def test_gradients_are_repeatable():
    scene, runs = Scene(queries=700, keys=700), []
    for _ in range(2):
        q, k, v, grad = (x.requires_grad_() for x in scene.tensors(torch.float32))
        gate = gates(scene).float().requires_grad_()
        attend(q, k, v, forget=gate).backward(grad)
        runs.append((q.grad, k.grad, v.grad, gate.grad))
    for one, other in zip(*runs, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("kernel", ["dense", "strided"])
def test_bfloat16_stays_close(kernel):
    scene = Scene()
    q, k, v, grad = (x.requires_grad_() for x in scene.tensors(torch.bfloat16))
    gate = gates(scene).float().requires_grad_()
    out = attend(q, k, v, forget=gate, kernel=kernel)
    out.backward(grad)
    wanted = everything(scene, None, None, "dense", torch.float64, forget=gates(scene))
    assert out.dtype == torch.bfloat16
    for name, found in (("output", out.detach()), ("q", q.grad), ("forget", gate.grad)):
        assert distance(found, wanted[name]) < 0.05


@torch.no_grad()
def test_memory_is_not_quadratic():
    """A matrix of gates would take 4 GiB here; the inputs take 20 MiB."""
    heads, length = 4, 16_384
    q, k, v = torch.randn(3, 1, heads, length, 16)
    forget = torch.full((1, heads, length), -1e-4)
    peak, running = 0, True

    def watch():
        nonlocal peak
        while running:
            peak = max(peak, resident())
            time.sleep(0.001)

    before = resident()
    watcher = threading.Thread(target=watch)
    watcher.start()
    attend(q[:, :, -512:], k, v, forget=forget, sink=torch.zeros(heads))
    running = False
    watcher.join()
    assert peak - before < 128 * 2**20


def decayed(forget, seen, *, temper=None):
    return Terms(None, None, temper, seen, 0.25, forget.cumsum(-1))


ADVERSARIAL = ("plain", "huge norms", "one huge key", "a far key that just matters", "tempered")


def adversarial(what, length, heads=4):
    """Heads that remember a few tokens, some, many and all; one far key against the gates."""
    draw = torch.Generator().manual_seed(3)
    q, k, v, grad = torch.randn(4, 2, heads, length, 16, generator=draw, dtype=torch.float64)
    forget = -torch.tensor([1.5, 0.1, 0.01, 0.0]).double()[None, :, None].repeat(2, 1, length)
    temper = None
    if what == "huge norms":
        q, k = 4 * q, 4 * k
    elif what == "one huge key":
        k[0, :, length // 3] *= 30
    elif what == "a far key that just matters":
        # its score makes up for what was forgotten, so that it holds half of the last row
        far = length // 4
        gone = forget[0, :, far + 1 :].sum(-1)
        k[:, :, far] = q[:, :, -1] * (-gone / 0.25 / q[:, :, -1].square().sum(-1))[..., None]
    elif what == "tempered":
        temper = torch.rand(1, heads, length, generator=draw, dtype=torch.float64) + 0.5
    return q, k, v, grad, forget, temper


@pytest.mark.parametrize("what", ADVERSARIAL)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_what_is_left_out_is_below_rounding(what, dtype):
    length = 1100
    *given, forget, temper = adversarial(what, length)
    found = {}
    for skip in (True, False):
        q, k, v, grad = (x.to(dtype) for x in given)
        leaves = [x.requires_grad_() for x in (q, k, v)] + [forget.clone().requires_grad_()]
        factor = None if temper is None else temper.to(dtype)
        terms = decayed(leaves[3], Visibility(length), temper=factor)
        out = gated(q, k, v, terms, skip=skip)
        found[skip] = [out.detach(), *torch.autograd.grad(out, leaves, grad)]
    allowed = 64 * torch.finfo(dtype).eps
    for ours, all_of_it in zip(found[True], found[False], strict=True):
        assert (ours - all_of_it).abs().max() <= allowed * all_of_it.abs().max().clamp(min=1)


@torch.no_grad()
def test_keys_really_are_left_out(monkeypatch):
    length = 4096
    *given, forget, _ = adversarial("plain", length)
    pairs = []
    shares = reach.Reach.shares

    def counted(self, part):
        found = shares(self, part)
        for share in found:
            a, b, lo, hi, causal, _ = share.part
            heads = torch.arange(4)[share.heads].numel()
            pairs.append(heads * (b - a) * (hi - lo) // (2 if causal else 1))
        return found

    monkeypatch.setattr(reach.Reach, "shares", counted)
    for skip in (False, True):
        pairs.append(0)
        gated(*given[:3], decayed(forget, Visibility(length)), skip=skip)
    at = len(pairs) - 1 - pairs[::-1].index(0)
    everywhere, needed = sum(pairs[:at]), sum(pairs[at:])
    assert everywhere == 4 * length**2 // 2
    # one head keeps all, another most of it; two are local
    assert everywhere / 4 < needed < 0.65 * everywhere


def test_keys_are_left_out_of_gradients_too(monkeypatch):
    length = 1500
    *given, forget, _ = adversarial("plain", length)
    counted, pairs = count_pairs(monkeypatch), []
    q, k, v, grad = (x.requires_grad_() for x in given)
    for skip in (False, True):
        counted["backward"] = 0
        gated(q, k, v, decayed(forget, Visibility(length)), skip=skip).backward(grad)
        pairs.append(counted["backward"])
    # one of four heads is local; the others look too far for groups of their own to pay
    assert 0.25 * pairs[0] < pairs[1] < 0.8 * pairs[0]


def test_squares_and_rectangles_cover_each_pair_once():
    for offset, end, exempt in ((0, 700, 0), (0, 700, 3), (0, 700, 400), (500, 700, 0),
                                (500, 700, 3), (500, 700, 600), (5, 6, 0), (0, 1, 1)):  # fmt: skip
        seen = torch.zeros(end, end, dtype=torch.int64)
        for part in parts.cut(offset, end, exempt, lambda a, b: 9.0 * (b - a)):
            a, b, lo, hi, causal, origin = part
            block = torch.ones(b - a, hi - lo, dtype=torch.int64)
            seen[a:b, lo:hi] += block.tril() if causal else block
            assert (origin is None) == (hi <= exempt)
        wanted = torch.ones(end, end, dtype=torch.int64).tril()
        wanted[:offset] = 0
        assert torch.equal(seen, wanted)


@torch.no_grad()
def test_a_tolerance_is_kept():
    scene = Scene(groups=2, queries=900, keys=900)
    q, k, v, _ = scene.tensors(torch.float32)
    for forget, sink in ((gates(scene).float(), None), (None, SINK.float())):
        found = attend(q, k, v, forget=forget, sink=sink, tolerance=1e-3)
        wide = [None if x is None else x.double() for x in (forget, sink)]
        exact = attend(
            *(x.double() for x in (q, k, v)), forget=wide[0], sink=wide[1], kernel="dense"
        )
        assert ((found.output - exact).abs().amax((2, 3)) <= found.bound).all()
        assert found.bound.max() < 1e-3
