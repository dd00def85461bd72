"""What an operator owes torch: fake shapes, compile, checkpointing, memory, repeatability."""

import copy
import threading
import time

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from bayesattn import SSMax, attend
from bayesattn.attention.kernels.dense import dense
from bayesattn.attention.kernels.strided import _strided, strided
from bayesattn.attention.terms import Terms
from bayesattn.attention.visibility import Visibility
from bayesattn.priors import GeneralizedGaussian
from tests.attention.scenes import Scene, ggd, ssmax


def resident() -> int:
    """Bytes of memory this process holds now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


@pytest.mark.parametrize("temper", [False, True])
def test_operator_registration(temper):
    q, k, v, _ = (x.requires_grad_() for x in Scene(groups=2).tensors(torch.float32))
    table = ggd(4, 0.5, torch.float32).table(21).detach().requires_grad_()
    factor = torch.rand(2, 4, 21, requires_grad=True) if temper else None
    first = torch.zeros(2, 21, dtype=torch.int64)
    args = (q, k, v, table, factor, factor, first, 0, None, 0, 0.3, True)
    torch.library.opcheck(_strided, args, atol=1e-4, rtol=1e-4)


def test_torch_compile_passes_through():
    prior, temper = ggd(4, 0.5, torch.float32), ssmax(4, "content+prior", torch.float32)
    padding = torch.tensor([0, 5])

    def run(q, k, v):
        return attend(q, k, v, prior, ssmax=temper, padding=padding)

    compiled = torch.compile(run, backend="aot_eager", fullgraph=True)
    results = []
    for function in (run, compiled):
        q, k, v, grad = (x.requires_grad_() for x in Scene().tensors(torch.float32))
        prior.zero_grad()
        out = function(q, k, v)
        out.backward(grad)
        results.append((out, q.grad, k.grad, v.grad, prior.theta_beta.grad.clone()))
    for eager, traced in zip(*results, strict=True):
        assert torch.allclose(eager, traced, atol=1e-6)


def test_gradient_checkpointing_passes_through():
    prior = ggd(4, 0.5)
    grads = []
    for wrap in (lambda f, *x: f(*x), lambda f, *x: checkpoint(f, *x, use_reentrant=False)):
        q, k, v, grad = (x.requires_grad_() for x in Scene().tensors())
        prior.zero_grad()
        wrap(lambda q, k, v: attend(q, k, v, prior), q, k, v).backward(grad)
        grads.append((q.grad, prior.theta_beta.grad.clone()))
    for plain, wrapped in zip(*grads, strict=True):
        assert torch.equal(plain, wrapped)


def test_gradients_are_repeatable():
    runs = []
    for _ in range(2):
        q, k, v, grad = (
            x.requires_grad_() for x in Scene(queries=300, keys=300).tensors(torch.float32)
        )
        prior = ggd(4, 0.5, torch.float32)
        attend(q, k, v, prior, ssmax=ssmax(4, "content+prior", torch.float32)).backward(grad)
        runs.append((q.grad, k.grad, prior.theta_alpha.grad, prior.theta_beta.grad))
    for one, other in zip(*runs, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("scope", [None, "content+prior"])
def test_memory_is_not_quadratic(scope):
    """A dense bias would take 4 GiB here; the inputs take 16 MiB."""
    heads, length, width = 4, 16384, 16
    draw = torch.Generator().manual_seed(0)
    q = torch.randn(1, heads, 512, width, generator=draw)
    k, v = (torch.randn(1, heads, length, width, generator=draw) for _ in "kv")
    prior = GeneralizedGaussian(heads)
    peak, running = 0, True

    def watch():
        nonlocal peak
        while running:
            peak = max(peak, resident())
            time.sleep(0.001)

    before = resident()
    watcher = threading.Thread(target=watch)
    watcher.start()
    with torch.no_grad():
        attend(q, k, v, prior, ssmax=ssmax(heads, scope, torch.float32), kernel="strided")
    running = False
    watcher.join()
    assert peak - before < 128 * 2**20


@pytest.mark.parametrize("scope", ["content", "content+prior", None])
def test_sequences_that_are_cut_alike_share_their_work(scope, generator):
    """Whichever places they have in the batch, and with every gradient their own."""
    length = 9
    cuts = torch.tensor([[0] * 4 + [1] * 5, [0] * 9, [0] * 4 + [1] * 5, [0] * 9, [0, 1] + [2] * 7])
    q, k, v = torch.randn(3, 5, 2, length, 4, generator=generator)
    prior = GeneralizedGaussian(2, init="linear")
    found = {}
    for kernel, dtype in (("dense", torch.float64), ("strided", torch.float32)):
        inputs = [x.to(dtype).requires_grad_() for x in (q, k, v)]
        own = copy.deepcopy(prior).to(dtype)
        ssmax = SSMax(2, scope=scope).to(dtype) if scope else None
        out = attend(*inputs, own, ssmax=ssmax, documents=cuts, kernel=kernel)
        # a weight of its own for every number, so that gradients of sequences differ
        weight = torch.arange(out.numel(), dtype=dtype).view(out.shape).sin()
        (out * weight).sum().backward()
        parameters = [own.theta_alpha, own.theta_beta, *(ssmax.parameters() if ssmax else [])]
        found[kernel] = [out, *(x.grad for x in (*inputs, *parameters))]
    for ours, definition in zip(found["strided"], found["dense"], strict=True):
        torch.testing.assert_close(ours.double(), definition, rtol=1e-4, atol=1e-5)


def test_every_sequence_has_its_own_gradient_of_the_temperature(generator):
    """Also the first and the last, which have the same temperature and are attended together."""
    q, k, v = torch.randn(3, 3, 2, 5, 4, generator=generator)
    table = torch.randn(2, 5, generator=generator)
    temper = torch.rand(2, 2, 5, generator=generator)[[0, 1, 0]].requires_grad_()
    grads = []
    for kernel in (dense, strided):
        out = kernel(q, k, v, Terms(table, None, temper, Visibility(5), 0.5))
        (out * torch.arange(out.numel()).view(out.shape)).sum().backward()
        grads.append(temper.grad)
        temper.grad = None
    torch.testing.assert_close(*grads, rtol=1e-3, atol=1e-3)
