"""Every kernel agrees with the dense definition in float64: outputs and all gradients."""

import pytest
import torch

from bayesattn import attend
from bayesattn.attention.kernels.strided import backward, forward
from bayesattn.priors import make_prior
from tests.attention.scenes import Scene, assert_same, everything, ggd, half, small_chunks, ssmax

BETAS = [-0.6, 0.0, 0.5, 1.0, 2.0]
SCOPES = [None, "content", "content+prior", "horizon"]

documents = torch.tensor([[0] * 9 + [1] * 1 + [2] * 11, [5] * 2 + [7] * 19])
padding = torch.tensor([0, 6])
VISIBILITIES = {
    "causal": {},
    "window": {"window": 7},
    "window of one": {"window": 1},
    "padding": {"padding": padding},
    "same padding": {"padding": torch.tensor([4, 4])},
    "all padding but one": {"padding": torch.tensor([20, 0])},
    "documents": {"documents": documents},
    "documents and padding": {"documents": documents, "padding": padding},
    "exempt": {"exempt": 3},
    "exempt, documents, window": {"exempt": 3, "documents": documents, "window": 6},
    "exempt, padding": {"exempt": 3, "padding": padding},
    "static cache": {"offset": 0, "exempt": 2},
}


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks and tiles of a few rows, so that short sequences have many of them."""
    monkeypatch.setattr(forward, "_BLOCKS", (10, 10))
    monkeypatch.setattr(forward, "_DIAGONAL", 4)
    monkeypatch.setattr(forward, "_FAR", 3)
    monkeypatch.setattr(forward, "_TILE_ELEMENTS", 60)
    monkeypatch.setattr(forward, "_TILE_KEYS", {"near": 3, "far": 5})
    monkeypatch.setattr(forward, "_LONG", 15)
    monkeypatch.setattr(forward, "_LONG_BLOCK", 10)
    monkeypatch.setattr(backward, "tile_shape", lambda end, reach: (5, 7))
    monkeypatch.setattr(backward, "_TILE_ELEMENTS", 9 * 5 * 12)
    small_chunks(monkeypatch, 3)


@pytest.mark.parametrize(("beta", "scope", "visibility"), half(BETAS, SCOPES, VISIBILITIES))
@pytest.mark.usefixtures("small_blocks")
def test_strided_equals_dense(beta, scope, visibility):
    queries = 14 if visibility == "static cache" else 21
    scene = Scene(queries=queries, visibility=VISIBILITIES[visibility])
    wanted = everything(scene, ggd(4, beta), ssmax(4, scope), "dense", torch.float64)
    for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, 2e-5)):
        prior, temper = ggd(4, beta, dtype), ssmax(4, scope, dtype)
        found = everything(scene, prior, temper, "strided", dtype)
        assert_same(found, wanted, tolerance, everything(scene, prior, temper, "dense", dtype))


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.usefixtures("small_blocks")
def test_strided_equals_dense_at_negative_temperature(beta):
    """Where the prior pushes scores up to thousands, so float64 only."""
    temper = ssmax(4, "content+prior")
    with torch.no_grad():
        temper.scale.neg_()
    wanted = everything(Scene(), ggd(4, beta), temper, "dense", torch.float64)
    assert_same(everything(Scene(), ggd(4, beta), temper, "strided", torch.float64), wanted, 1e-9)


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("queries, keys", [(1, 1), (1, 19), (13, 13), (6, 33)])
@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.usefixtures("small_blocks")
def test_strided_shapes(scope, queries, keys, batch, groups):
    scene = Scene(batch=batch, groups=groups, queries=queries, keys=keys)
    wanted = everything(scene, ggd(4, 0.5), ssmax(4, scope), "dense", torch.float64)
    found = everything(scene, ggd(4, 0.5), ssmax(4, scope), "strided", torch.float64)
    assert_same(found, wanted, 1e-11)


@pytest.mark.parametrize("length", [127, 1030, 2200])
@pytest.mark.parametrize("scope", [None, "content+prior"])
def test_strided_at_its_own_block_sizes(length, scope):
    scene = Scene(batch=1, heads=2, groups=1, queries=length, keys=length)
    wanted = everything(scene, ggd(2, 0.5), ssmax(2, scope), "dense", torch.float64)
    prior, temper = ggd(2, 0.5, torch.float32), ssmax(2, scope, torch.float32)
    found = everything(scene, prior, temper, "strided", torch.float32)
    assert_same(found, wanted, 2e-5, everything(scene, prior, temper, "dense", torch.float32))


@pytest.mark.parametrize("name", ["uniform", "laplace", "student", "bucketed"])
@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.usefixtures("small_blocks")
def test_strided_with_every_other_prior(name, scope):
    options = {"learned": True} if name == "laplace" else {}
    prior = make_prior(name, 4, **options).double()
    with torch.no_grad():
        for p in prior.parameters():
            p += torch.randn(p.shape, generator=torch.Generator().manual_seed(3))
    wanted = everything(Scene(), prior, ssmax(4, scope), "dense", torch.float64)
    found = everything(Scene(), prior, ssmax(4, scope), "strided", torch.float64)
    assert_same(found, wanted, 1e-11)


@pytest.mark.parametrize(("scope", "visibility", "groups"), half(SCOPES, VISIBILITIES, [2, 4]))
def test_flex_equals_dense_forward(scope, visibility, groups):
    queries = 14 if visibility == "static cache" else 21
    scene = Scene(groups=groups, queries=queries, visibility=VISIBILITIES[visibility])
    q, k, v, _ = scene.tensors(torch.float32)
    with torch.no_grad():
        wanted = attend(q.double(), k.double(), v.double(), ggd(4, 0.5), ssmax=ssmax(4, scope),
                        kernel="dense", **scene.visibility)  # fmt: skip
        prior, temper = ggd(4, 0.5, torch.float32), ssmax(4, scope, torch.float32)
        found = attend(q, k, v, prior, ssmax=temper, kernel="flex", **scene.visibility)
    assert (found - wanted).abs().max() < 2e-5


@pytest.mark.parametrize("kernel", ["dense", "strided"])
def test_bfloat16_stays_close(kernel):
    q, k, v, grad = (x.requires_grad_() for x in Scene().tensors(torch.bfloat16))
    prior = ggd(4, 0.5, torch.float32)
    out = attend(q, k, v, prior, ssmax=ssmax(4, "content+prior", torch.float32), kernel=kernel)
    out.backward(grad)
    wanted = everything(Scene(), ggd(4, 0.5), ssmax(4, "content+prior"), "dense", torch.float64)
    assert out.dtype == torch.bfloat16
    found = {"output": out.detach(), "q": q.grad, "prior.theta_beta": prior.theta_beta.grad}
    assert_same(found, {n: wanted[n] for n in found}, 0.05)


@pytest.mark.parametrize("beta", [-2.0, -8.0, 8.0])
@pytest.mark.parametrize("scope", [None, "content+prior"])
def test_extreme_shapes_stay_finite(beta, scope):
    """A prior of -1e40 at distance 0 must not turn rounding into gradient or NaN."""
    # wide heads, so that a dot product and a sum round differently
    scene = Scene(width=64, visibility={"documents": documents})
    wanted = everything(scene, ggd(4, beta), ssmax(4, scope), "dense", torch.float64)
    prior, temper = ggd(4, beta, torch.float32), ssmax(4, scope, torch.float32)
    found = everything(scene, prior, temper, "strided", torch.float32)
    for name, value in found.items():
        assert torch.isfinite(value).all(), name
    assert (found["output"] - wanted["output"]).abs().max() < 1e-3
    for name in ("prior.theta_alpha", "prior.theta_beta"):
        assert (found[name] - wanted[name]).abs().max() < 0.01 * (1 + wanted[name].abs().max())


def test_gradcheck():
    q, k, v, _ = Scene(batch=1, heads=2, groups=1, queries=5, keys=6, width=3).tensors()
    table = ggd(2, 0.5).table(6).detach().requires_grad_()
    scale = torch.tensor([0.8, 1.3], dtype=torch.float64, requires_grad=True)

    def run(q, k, v, table, scale):
        return attend(q, k, v, table, ssmax=scale, kernel="strided")

    inputs = [x.requires_grad_() for x in (q, k, v)]
    assert torch.autograd.gradcheck(run, (*inputs, table, scale))
