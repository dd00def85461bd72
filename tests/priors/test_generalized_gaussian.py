import copy
import math

import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from bayesattn.priors import GeneralizedGaussian, Laplace
from bayesattn.priors.generalized_gaussian import EPS

BETAS = [-2, -0.6, -0.01, 0, 0.3, 1, 2]


def ggd(alpha=0.0, beta=0.0, mu=0.0, dtype=torch.double, learn_mu=False):
    """A prior with one head per element of theta_alpha, theta_beta and mu (broadcast)."""
    thetas = torch.broadcast_tensors(
        *(torch.as_tensor(x, dtype=torch.double).reshape(-1) for x in (alpha, beta, mu))
    )
    prior = GeneralizedGaussian(len(thetas[0]), learn_mu=learn_mu).to(dtype)
    with torch.no_grad():
        prior.theta_alpha.copy_(thetas[0])
        prior.theta_beta.copy_(thetas[1])
        prior.theta_mu.copy_(torch.asinh(thetas[2] / 2))
    return prior


# The bias at theta_alpha = 0, as spec and docs print it; digits after the point are significant.
DISTANCES = [0, 1, 2, 10, 100, 1000, 100_000]
PRINTED = {
    -1: "1e5 1 0.5 0.1 0.01 0.001 ~0",
    -0.6: "1000 1 .660 .251 .063 .016 .001",
    -0.3: "31.6 1 .812 .501 .251 .126 .032",
    0: "1 1 1 1 1 1 1",
    0.3: ".032 1 1.23 2.00 3.98 7.94 31.6",
    0.5: ".003 1 1.41 3.16 10 31.6 316.",
    1: "~0 1 2 10 100 1000 1e5",
    2: "~0 1 4 100 1e4 1e6 1e10",
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("beta", PRINTED)
def test_printed_table(beta, dtype):
    bias = ggd(beta=beta, dtype=dtype).log_prior(torch.tensor(DISTANCES))[0]
    for value, printed in zip(bias.tolist(), PRINTED[beta].split(), strict=True):
        if printed == "~0":
            assert -2e-5 < value <= 0
        elif "." in printed:
            half_a_digit = 0.5 * 10 ** -len(printed.split(".")[1])
            assert -value == pytest.approx(float(printed), abs=1.001 * half_a_digit)
        else:
            assert -value == pytest.approx(float(printed), rel=3e-5)


@pytest.mark.parametrize("theta_alpha", [-3.0, 0.0, 2.5])
def test_beta_0_is_uniform(theta_alpha):
    prior = ggd(alpha=theta_alpha, beta=0, dtype=torch.float32)
    share = prior.table(100).softmax(-1)
    torch.testing.assert_close(share, torch.full((1, 100), 0.01), atol=1e-9, rtol=1e-6)


def test_at_beta_0_only_beta_has_a_gradient():
    prior = ggd(alpha=0.7, beta=0)
    (prior.table(50).softmax(-1) * torch.arange(50)).sum().backward()
    assert prior.theta_alpha.grad.abs().item() < 1e-12
    assert prior.theta_beta.grad.abs().item() > 0.1


def test_beta_1_is_alibi_and_eps_a_constant():
    prior, alibi = GeneralizedGaussian(12, init="alibi").double(), Laplace(12).double()
    with torch.no_grad():
        prior.theta_alpha.copy_(alibi.slopes.log())
    shift = EPS * alibi.slopes[:, None]
    torch.testing.assert_close(prior.table(4000) + shift, alibi.table(4000), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("num_heads", [8, 12, 16])
def test_beta_1_attends_like_alibi_in_float32(num_heads):
    ours = GeneralizedGaussian(num_heads, init="alibi").table(2048).softmax(-1)
    torch.testing.assert_close(ours, Laplace(num_heads).table(2048).softmax(-1), atol=1e-6, rtol=0)


@pytest.mark.parametrize("sigma", [0.5, 3.0, 20.0])
def test_beta_2_is_a_gaussian(sigma):
    r = torch.arange(100, dtype=torch.double)
    ours = ggd(alpha=-math.log(2 * sigma**2), beta=2).table(100)[0]
    gauss = torch.distributions.Normal(0.0, sigma).log_prob(r + EPS)
    torch.testing.assert_close(ours - ours[0], gauss - gauss[0])


def test_large_beta_is_a_window():
    prior = ggd(alpha=-200 * math.log(10.5), beta=200)
    share = prior.table(64).softmax(-1)[0]
    torch.testing.assert_close(share[:11], torch.full_like(share[:11], 1 / 11), rtol=1e-3, atol=0)
    assert share[11:].sum() < 1e-12


@pytest.mark.parametrize("beta", [-2, -0.6, -0.01, 0.3, 1, 2])
@pytest.mark.parametrize("scale", [0.2, 1.0, 30.0])
def test_scale_and_log_factor_are_two_forms_of_one_prior(beta, scale):
    prior = ggd(alpha=-beta * math.log(scale), beta=beta)
    assert prior.alpha.item() == pytest.approx(scale)
    size = torch.arange(50, dtype=torch.double) + EPS
    expected = -((size / prior.alpha.item()) ** beta)
    torch.testing.assert_close(prior.table(50)[0], expected)


@pytest.mark.parametrize("beta", [0.3, 0.5, 1, 1.5, 2, 3])
@pytest.mark.parametrize("mu", [0.7, -2.4, 30.0])
def test_agrees_with_scipy_up_to_a_constant(beta, mu):
    prior = ggd(alpha=-beta * math.log(10), beta=beta, mu=mu)
    ours = prior.table(60)[0].detach().numpy()
    # scipy's variable is j - i = -r
    theirs = scipy.stats.gennorm.logpdf([-r for r in range(60)], beta, loc=mu, scale=10)
    assert ours - ours[5] == pytest.approx(theirs - theirs[5], rel=1e-4, abs=1e-4)


def test_named_properties():
    prior = ggd(alpha=[0.5, 0.5, 0.0], beta=[2.0, 0.0, -1.0], mu=[0.0, 3.0, -1.25])
    torch.testing.assert_close(prior.mu, torch.tensor([0, 3, -1.25]).double())
    assert prior.beta.tolist() == [2, 0, -1]
    assert prior.alpha.tolist() == pytest.approx([math.exp(-0.25), math.inf, 1])
    prior.alpha[[0, 2]].sum().backward()
    assert torch.isfinite(prior.theta_beta.grad).all()
    assert torch.isfinite(prior.theta_alpha.grad).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_head_classes(dtype):
    prior = ggd(beta=[1.0, 0.0, -0.01, -0.6, -0.61, -3.0], dtype=dtype)
    assert prior.classes() == ["local"] * 2 + ["retrieval"] * 2 + ["aggressive"] * 2


@pytest.mark.parametrize("beta", [-0.5, -1, -3])
def test_negative_beta_leaves_its_own_token(beta):
    prior = ggd(beta=beta, dtype=torch.float32)
    for n in (2, 3, 100):
        assert prior.table(n).softmax(-1)[0, 0] < 1e-6
    assert prior.table(1).softmax(-1).item() == 1


def test_negative_beta_is_uniform_far_away():
    excess = [
        abs(n * ggd(beta=-0.5).table(n).softmax(-1)[0, -1].item() - 1) for n in (100, 10_000, 10**6)
    ]
    assert excess[0] > excess[1] > excess[2]
    assert excess[2] < 2e-3


@pytest.mark.parametrize("beta", [0.5, 1, 2])
def test_positive_beta_forgets_what_is_far(beta):
    prior = ggd(alpha=math.log(0.3), beta=beta)
    r = torch.arange(2000)
    for content_bound in (0.0, 2.0):
        content = content_bound * torch.sin(r.double())  # any content within ±bound
        share = (prior.table(2000)[0] + content).softmax(-1)
        # Lemma 3: relative to the own token, at most exp(2M) · exp(bias)
        bound = math.exp(2 * content_bound) * (prior.table(2000)[0] - prior.table(1)[0]).exp()
        assert (share / share[0] <= bound * (1 + 1e-9)).all()
        mass = [share[d:].sum().item() for d in (10, 100, 1000)]
        assert mass[0] > mass[1] >= mass[2]
        assert mass[2] < 1e-3


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("mu", [0.37, -3.6])
def test_gradients(beta, mu):
    prior = ggd(alpha=-0.3, beta=beta, mu=mu, learn_mu=True)
    names = ["theta_alpha", "theta_beta", "theta_mu"]
    distance = torch.tensor([0, 1, 2, 3, 4, 5, 17, 300])

    def density(*values):
        return torch.func.functional_call(prior, dict(zip(names, values, strict=True)), (distance,))

    values = [getattr(prior, name).detach().clone().requires_grad_() for name in names]
    assert torch.autograd.gradcheck(density, values)
    assert torch.autograd.gradgradcheck(density, values)


@pytest.mark.parametrize("mu", [0.0, 1e-4, 0.5, -3.0, -3.5])
@pytest.mark.parametrize("theta_alpha", [-6.0, 0.0, 6.0])
def test_no_nan_for_any_moderate_beta(theta_alpha, mu):
    betas = torch.linspace(-8, 8, 161)
    prior = ggd(theta_alpha, betas, mu, dtype=torch.float32, learn_mu=True)
    table = prior.table(2048)
    assert torch.isfinite(table).all()
    table.sum().backward(retain_graph=True)
    assert torch.isfinite(prior.theta_alpha.grad).all()
    assert torch.isfinite(prior.theta_beta.grad).all()
    # Right beside the kink the true slope in mu exceeds float32: infinite, but a number.
    assert not torch.isnan(prior.theta_mu.grad).any()
    prior.zero_grad()
    (table.softmax(-1) * torch.arange(2048)).sum().backward()  # what attention asks for
    for values in prior.parameters():
        assert torch.isfinite(values.grad).all()


@pytest.mark.parametrize("beta", [-50.0, -8.0, 50.0, 1e4])
@pytest.mark.parametrize("theta_alpha", [-200.0, 200.0, 1e4])
@pytest.mark.parametrize("theta_mu", [0.0, 100.0, -100.0])
def test_extreme_parameters_stay_finite(beta, theta_alpha, theta_mu):
    prior = ggd(theta_alpha, beta, dtype=torch.float32, learn_mu=True)
    with torch.no_grad():
        prior.theta_mu.fill_(theta_mu)
    table = prior.table(512)
    assert table.min() >= -5.6e34
    assert torch.isfinite(100 * table).all()
    table.sum().backward()
    for values in prior.parameters():
        assert torch.isfinite(values.grad).all()


@pytest.mark.parametrize("beta", [-7.0, -6.5, -1.0, 0.5, 1.0])
def test_the_kink_at_the_location_has_slope_0(beta):
    prior = ggd(beta=beta, dtype=torch.float32, learn_mu=True)
    prior.log_prior(torch.tensor([0])).sum().backward()
    assert prior.theta_mu.grad.item() == 0


def test_learned_and_frozen_location_give_the_same_values():
    betas = torch.tensor(BETAS)
    for mu in (0.0, 1.3, -2.0):
        frozen, learned = ggd(0.2, betas, mu), ggd(0.2, betas, mu, learn_mu=True)
        assert torch.equal(frozen.table(300), learned.table(300))
    mixed = ggd(0.2, 1.0, [0.0, 1.5])  # a frozen location that is not 0 everywhere
    assert torch.equal(mixed.table(9)[1:], ggd(0.2, 1.0, 1.5).table(9))


def test_a_frozen_location_has_no_gradient_and_is_not_counted():
    prior = GeneralizedGaussian(16, init="mixed")
    prior.table(10).sum().backward()
    assert prior.theta_mu.grad is None
    assert sum(p.numel() for p in prior.parameters() if p.requires_grad) == 2 * 16
    learned = GeneralizedGaussian(16, learn_mu=True)
    assert sum(p.numel() for p in learned.parameters() if p.requires_grad) == 3 * 16


def test_old_parameter_names_load():
    model = nn.ModuleDict({"prior": GeneralizedGaussian(3)})
    old = {
        "prior.shape": torch.tensor([1.0, 2, 3]).reshape(1, 3, 1, 1),
        "prior.scale": torch.tensor([4.0, 5, 6]).reshape(1, 3, 1, 1),
        "prior.loc": torch.tensor([0.7, 0.8, 0.9]).reshape(1, 3, 1, 1),
    }
    given = dict(old)
    model.load_state_dict(given)
    assert given.keys() == old.keys()
    prior = model["prior"]
    assert prior.theta_beta.tolist() == [1, 2, 3]
    assert prior.theta_alpha.tolist() == [4, 5, 6]
    torch.testing.assert_close(prior.theta_mu.detach(), torch.tensor([0.7, 0.8, 0.9]))
    again = copy.deepcopy(model)
    again.load_state_dict(model.state_dict())
    assert sorted(model.state_dict()) == ["prior.theta_alpha", "prior.theta_beta", "prior.theta_mu"]


def test_old_and_new_names_together_are_refused():
    prior = GeneralizedGaussian(2)
    with pytest.raises(RuntimeError, match=r"Unexpected key.*shape"):
        prior.load_state_dict({**prior.state_dict(), "shape": torch.zeros(2)})


@pytest.mark.parametrize(
    ("init", "alpha", "beta"),
    [
        ("uniform", [0] * 6, [0] * 6),
        ("alibi", [math.log(2) * x for x in (-2, -4, -6, -8, -1, -3)], [1] * 6),
        ("mixed", [math.log(2) * x for x in (-1, -2.5, -4, 0, 0, 0)], [1, 1, 1, 0, 0, 0]),
        ("local", [math.log(2) * x for x in (-1, -1.6, -2.2, -2.8, -3.4, -4)], [1] * 6),
        ("sharp", [math.log(2) * x for x in (2, 0.5, -1, 0, 0, 0)], [1, 1, 1, 0, 0, 0]),
        ("linear", [0] * 6, [0, 0.2, 0.4, 0.6, 0.8, 1]),
    ],
)
def test_inits(init, alpha, beta):
    prior = GeneralizedGaussian(6, init=init)
    assert prior.theta_alpha.tolist() == pytest.approx(alpha)
    assert prior.theta_beta.tolist() == pytest.approx(beta)
    assert not prior.theta_mu.any()


@pytest.mark.parametrize(("num_heads", "local"), [(1, 0), (2, 1), (3, 1), (7, 3), (8, 4)])
def test_mixed_init_gives_half_the_heads_a_place(num_heads, local):
    prior = GeneralizedGaussian(num_heads, init="mixed")
    assert prior.theta_beta.tolist() == [1] * local + [0] * (num_heads - local)
    assert not prior.theta_alpha[local:].any()


def test_sampled_init_repeats_with_its_generator_and_spares_the_global_one():
    state = torch.get_rng_state()
    first, again, other = (
        GeneralizedGaussian(500, init="sampled", generator=torch.Generator().manual_seed(seed))
        for seed in (3, 3, 4)
    )
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first.theta_alpha, again.theta_alpha)
    assert torch.equal(first.theta_beta, again.theta_beta)
    assert not torch.equal(first.theta_beta, other.theta_beta)
    for theta in (first.theta_alpha, first.theta_beta):
        assert abs(theta.mean()) < 0.2
        assert 0.85 < theta.std() < 1.15
    assert not torch.equal(first.theta_alpha, first.theta_beta)


def test_layers_that_share_a_generator_differ(generator):
    first, second = (GeneralizedGaussian(4, init="sampled", generator=generator) for _ in range(2))
    assert not torch.equal(first.theta_beta, second.theta_beta)


def test_an_unknown_init_lists_the_inits():
    with pytest.raises(ValueError, match="unknown init 'slope'; choose one of uniform, alibi"):
        GeneralizedGaussian(4, init="slope")


def test_reach_in_closed_form():
    # exp(-(r/10)²) >= 1e-6 up to r = 10 · sqrt(13.8) = 37.2; and a peak moved to 20
    narrow, moved = -2 * math.log(10), -20.0
    prior = ggd(narrow, [2.0, 2.0, 0.0, -0.5], [0.0, moved, 0.0, 0.0])
    assert prior.reach(1e-6).tolist() == [37, 57, math.inf, math.inf]


def test_a_head_at_the_floor_reaches_everywhere():
    prior = ggd(alpha=300, beta=1)
    assert prior.table(40).unique().numel() == 1
    assert prior.reach().item() == math.inf


@given(
    r=st.floats(1, 1e4),
    s=st.floats(0, 1e3),
    alpha=st.floats(-3, 3),
    beta=st.floats(-3, 3),
    mu=st.floats(0, 50),
)
def test_moving_the_query_is_moving_mu(r, s, alpha, beta, mu):
    moved = ggd(alpha, beta, mu).log_prior(torch.tensor([r + s], dtype=torch.double))
    shifted = ggd(alpha, beta, mu + s).log_prior(torch.tensor([r], dtype=torch.double))
    torch.testing.assert_close(moved, shifted, rtol=1e-9, atol=0)


@given(r=st.floats(10, 1e4), k=st.floats(1, 100), alpha=st.floats(-3, 3), beta=st.floats(-3, 3))
def test_stretching_distances_is_scaling_alpha(r, k, alpha, beta):
    stretched = ggd(alpha, beta).log_prior(torch.tensor([k * r], dtype=torch.double))
    scaled = ggd(alpha + beta * math.log(k), beta).log_prior(torch.tensor([r], dtype=torch.double))
    torch.testing.assert_close(stretched, scaled, rtol=1e-5, atol=0)


def test_positive_holds_beta_at_0_and_lets_it_return():
    prior = GeneralizedGaussian(3, positive=True)
    free = GeneralizedGaussian(3)
    theta = torch.tensor([-0.5, 0.0, 0.7])
    with torch.no_grad():
        prior.theta_beta.copy_(theta)
        free.theta_beta.copy_(theta.clamp(min=0))
    distance = torch.arange(9)
    assert torch.equal(prior.log_prior(distance), free.log_prior(distance))
    assert torch.equal(prior.reach(1e-3), free.reach(1e-3))
    assert prior.beta.tolist() == free.beta.tolist()
    assert prior.classes() == ["local"] * 3
    for each in (prior, free):
        each.log_prior(distance).sum().backward()
    assert torch.equal(prior.theta_beta.grad, free.theta_beta.grad)
    assert bool(prior.theta_beta.grad[0] != 0)
    assert "positive=True" in repr(prior)
