"""Each line of the table in docs/reliability.md: where attend may be called, and what it says."""

import multiprocessing
import os
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from bayesattn import SSMax, attend
from bayesattn.attention import posterior
from bayesattn.priors import GeneralizedGaussian, Laplace, Uniform
from tests.attention.scenes import ggd

KERNELS = ("auto", "dense", "strided", "blocked")


LONG = posterior.SMALL + 12
"""Keys for which auto does not take the dense kernel."""


def inputs(*, batch=2, heads=4, length=LONG, width=8, dtype=torch.float32, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(3, batch, heads, length, width, generator=draw).to(dtype).unbind()


def close(found, wanted, tolerance=2e-5):
    torch.testing.assert_close(found.double(), wanted.double(), rtol=0, atol=tolerance)


@pytest.mark.parametrize("kernel", KERNELS)
def test_inference_mode(kernel):
    prior, (q, k, v) = ggd(4, 0.7, torch.float32), inputs()
    with torch.inference_mode():
        prefill = attend(q, k, v, prior, kernel=kernel)
        steps = [
            attend(q[:, :, n : n + 1], k[:, :, : n + 1], v[:, :, : n + 1], prior)
            for n in range(LONG - 10, LONG)
        ]
    close(torch.cat(steps, 2), prefill[:, :, -10:])
    q.requires_grad_()  # what inference mode has prepared does not reach into training
    attend(q[:, :, -1:], k, v, prior).sum().backward()
    close(attend(q, k, v, prior, kernel=kernel).detach(), prefill)


@pytest.mark.parametrize("kernel", KERNELS)
def test_autocast(kernel):
    prior, (q, k, v) = ggd(4, 0.7, torch.float32), inputs(dtype=torch.bfloat16)
    wanted = attend(q, k, v, prior, kernel=kernel)
    with torch.autocast("cpu", torch.bfloat16):
        found = attend(q, k, v, prior, kernel=kernel)
    assert found.dtype == torch.bfloat16
    close(found, wanted, 0.05)


@pytest.mark.parametrize("kernel", KERNELS)
def test_deterministic_mode(kernel):
    def run():
        prior, (q, k, v) = ggd(4, 0.7, torch.float32), inputs()
        q.requires_grad_()
        out = attend(q, k, v, prior, ssmax=SSMax(4), kernel=kernel)
        return out, *torch.autograd.grad(out.square().sum(), (q, prior.theta_beta))

    torch.use_deterministic_algorithms(True)
    try:
        first, second = run(), run()
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_an_empty_batch_is_refused():
    q, k, v = inputs()
    with pytest.raises(ValueError, match="must not be empty"):
        attend(q[:0], k[:0], v[:0])


@pytest.mark.parametrize("prior", [None, "ggd"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_second_derivatives(kernel, prior):
    q, k, v = inputs(batch=1, heads=2, width=3, dtype=torch.float64)
    q.requires_grad_()
    prior = prior and ggd(2, 0.7)

    def first():
        out = attend(q, k, v, prior, kernel=kernel)
        return torch.autograd.grad(out.square().sum(), q, create_graph=True)[0]

    if kernel != "dense":
        with pytest.raises(ValueError, match="first derivatives only; pass kernel='dense'"):
            first()
        return
    assert torch.autograd.grad(first().sum(), q)[0].isfinite().all()


def test_second_derivatives_of_the_dense_kernel():
    q, k, v = inputs(batch=1, heads=2, length=5, width=3, dtype=torch.float64)
    prior = ggd(2, 0.7)

    def call(q, k, v, beta):
        table = torch.func.functional_call(prior, {"theta_beta": beta}, (torch.arange(5.0),))
        return attend(q, k, v, table, kernel="dense")

    leaves = [x.requires_grad_() for x in (q, k, v, prior.theta_beta.detach().clone())]
    assert torch.autograd.gradgradcheck(call, leaves)


@pytest.mark.parametrize("length", [20, LONG])
@pytest.mark.parametrize("kernel", ["auto", "dense"])
def test_torch_func(kernel, length):
    q, k, v = inputs(batch=3, heads=2, length=length, width=3, dtype=torch.float64)
    prior, ssmax = ggd(2, 0.7), SSMax(2).double()
    more = {"ssmax": ssmax, "padding": torch.tensor([3]), "kernel": kernel}

    def one(q, k, v):
        return attend(q[None], k[None], v[None], prior, **more)[0]

    wanted = torch.stack([one(*x) for x in zip(q, k, v, strict=True)])
    close(torch.func.vmap(one)(q, k, v), wanted, 1e-12)

    def loss(q, k, v):
        return attend(q, k, v, prior, ssmax=ssmax, kernel=kernel).square().sum()

    found = torch.func.grad(loss)(q, k, v)
    (wanted,) = torch.autograd.grad(loss(q.requires_grad_(), k, v), q)
    close(found, wanted, 1e-10)
    q = q.detach()
    each = torch.func.vmap(torch.func.grad(lambda q, k, v: loss(q[None], k[None], v[None])))
    close(each(q, k, v), wanted, 1e-10)

    def of_beta(beta):
        table = torch.func.functional_call(prior, {"theta_beta": beta}, (torch.arange(length),))
        return attend(q, k, v, table.double(), kernel=kernel)[0, :, -1].sum(-1)

    jacobian = torch.func.jacrev(of_beta)(prior.theta_beta.detach())
    assert jacobian.shape == (2, 2) and (jacobian.diag() != 0).all()
    assert jacobian[0, 1] == jacobian[1, 0] == 0


@pytest.mark.parametrize("kernel", ["strided", "blocked", "flex"])
def test_torch_func_with_a_kernel_that_it_cannot_see_through(kernel):
    q, k, v = inputs()
    with pytest.raises(ValueError, match=f"under torch.func there is no kernel '{kernel}'"):
        torch.func.grad(lambda q: attend(q, k, v, Laplace(4), kernel=kernel).sum())(q)


def work(seed, priors):
    """A prefill, decoding and a training step, with priors that all threads share."""
    torch.manual_seed(seed)
    q, k, v = inputs(length=LONG + seed % 5, seed=seed)
    found = []
    for prior in priors:
        found.append(attend(q, k, v, prior).detach())
        with torch.no_grad():
            found += [
                attend(q[:, :, n : n + 1], k[:, :, : n + 1], v[:, :, : n + 1], prior)
                for n in range(LONG - 8, q.shape[2])
            ]
        leaf = q.clone().requires_grad_()
        found.append(torch.autograd.grad(attend(leaf, k, v, prior).square().sum(), leaf)[0])
    return found


def shared_priors():
    return [ggd(4, 0.7, torch.float32), Laplace(4), Uniform(4), GeneralizedGaussian(4)]


def test_eight_threads_at_once():
    priors = shared_priors()
    seeds = [seed % 10 for seed in range(40)]
    wanted = [work(seed, priors) for seed in range(10)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda seed: work(seed, priors), seeds))
    for seed, results in zip(seeds, found, strict=True):
        for a, b in zip(results, wanted[seed], strict=True):
            close(a, b, 1e-6)


def in_child(pipe, priors, wanted):
    # as in any process forked from one that has used torch's threads, workers of a DataLoader too
    torch.set_num_threads(1)
    pipe.send(all(torch.allclose(a, b) for a, b in zip(work(3, priors), wanted, strict=True)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_fork_after_use():
    priors = shared_priors()
    wanted = work(3, priors)  # tables and scratch memory are there already
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(
        target=in_child, args=(theirs, priors, wanted)
    )
    child.start()
    assert ours.poll(60), "the child hangs"
    assert ours.recv()
    child.join(10)
    assert child.exitcode == 0


def test_scores_that_no_float64_holds_are_said():
    q, k, v = inputs(dtype=torch.float64)
    with pytest.raises(ValueError, match="scores are infinite even in float64"):
        attend(q * 1e200, k * 1e200, v, Laplace(4))
    with pytest.raises(ValueError, match="scale must be a finite number, not nan"):
        attend(q, k, v, scale=float("nan"))


def test_a_large_score_is_computed_in_float64():
    q, k, v = inputs()
    wanted = attend(q.double() * 1e20, k.double() * 1e20, v.double(), kernel="dense")
    for kernel in KERNELS:
        close(attend(q * 1e20, k * 1e20, v, kernel=kernel), wanted)
