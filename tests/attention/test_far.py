"""Far keys: a product of small rank in place of a bias that would have to be written out."""

import pytest
import torch

from bayesattn import SSMax, attend
from bayesattn.attention.kernels.strided import far, forward
from bayesattn.attention.kernels.strided.band import Band
from bayesattn.attention.visibility import Visibility
from bayesattn.priors import Bucketed, GeneralizedGaussian, Laplace, Student

ROWS = 1024


def band(table, span=None, exempt=0):
    return Band.of(table, Visibility(table.shape[1], window=span, exempt=exempt), ROWS)


def test_polynomials_up_to_the_number_of_nodes_are_exact():
    row = torch.arange(ROWS, dtype=torch.float64) / ROWS
    for power in range(far.NODES):
        values = row**power
        found = far.weights(ROWS) @ values[far.nodes(ROWS)]
        torch.testing.assert_close(found, values, atol=1e-12, rtol=0)


@pytest.mark.parametrize("beta", [-0.6, 0.0, 0.5, 1.0, 2.0])
def test_priors_are_smooth_from_far_away(beta):
    prior = GeneralizedGaussian(2)
    with torch.no_grad():
        prior.theta_beta.fill_(beta)
        prior.theta_alpha.copy_(torch.tensor([-1.0, 1.0]))
    assert far.smooth(band(prior.table(9000).detach()), ROWS)


def test_other_priors():
    for prior in (Laplace(4), Student(4)):
        assert far.smooth(band(prior.table(9000).detach()), ROWS)


@pytest.mark.parametrize("what", ["spike", "jump", "wave", "noise", "short wave"])
def test_what_is_not_smooth_is_noticed(what):
    table = -torch.arange(9000.0).sqrt().repeat(2, 1)
    distance = torch.arange(9000.0)
    if what == "spike":
        table[1, 5000] += 0.1
    elif what == "jump":
        table[1, 6000:] -= 0.1
    elif what == "wave":
        table[0] += 0.1 * (distance / 50).sin()
    elif what == "short wave":
        table[0] += 0.1 * (distance % 2)
    else:
        table[0] += 0.01 * torch.randn(9000, generator=torch.Generator().manual_seed(0))
    assert not far.smooth(band(table), ROWS)


@pytest.fixture
def used(monkeypatch):
    """How often the far field was taken."""
    calls = []
    keys = far.FarKeys.keys
    monkeypatch.setattr(far.FarKeys, "keys", lambda self, *a: calls.append(a) or keys(self, *a))
    monkeypatch.setattr(forward, "_FAR_FIELD", 256)
    monkeypatch.setattr(forward, "_LONGER", 4096)
    return calls


@pytest.mark.parametrize("scene", ["plain", "grouped", "window", "exempt", "bucketed", "two"])
def test_attention_is_that_of_the_definition(used, scene):
    torch.manual_seed(0)
    length, heads = 5120, 4 if scene == "grouped" else 2
    groups = 2
    batch = 2 if scene == "two" else 1
    q = torch.randn(batch, heads, length, 8)
    k, v = torch.randn(2, batch, groups, length, 8)
    prior = Bucketed(heads) if scene == "bucketed" else GeneralizedGaussian(heads, init="linear")
    with torch.no_grad():
        for parameter in prior.parameters():
            parameter.add_(0.3 * torch.randn(heads if parameter.ndim == 1 else parameter.shape))
    ssmax = SSMax(heads, init=0.4)
    options = {"window": {"window": 4500}, "exempt": {"exempt": 700}}.get(scene, {})
    with torch.no_grad():
        found = attend(q, k, v, prior, ssmax=ssmax, kernel="strided", skip=False, **options)
        some, last = slice(3740, 3940), 3940  # both sides of a block's edge
        exact = attend(
            q[:, :, some].double(),
            k[:, :, :last].double(),
            v[:, :, :last].double(),
            prior.double(),
            ssmax=ssmax.double(),
            kernel="dense",
            **options,
        )
    assert used  # buckets are level from far away
    torch.testing.assert_close(found[:, :, some].double(), exact, atol=2e-5, rtol=1e-4)
