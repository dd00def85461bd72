"""`PriorContract`: what every prior must do. A prior enters by being in `PRIORS`."""

import copy
import math

import pytest
import torch
from matplotlib.figure import Figure

from bayesattn.priors import PRIORS, Laplace, make_prior
from bayesattn.priors.contract import CHECKS, HEADS, failures
from bayesattn.priors.contract import scattered as scatter

SETTINGS = [(name, {}) for name in PRIORS] + [
    ("laplace", {"learned": True}),
    ("laplace", {"slopes": [0.3, 0.01, 2.0, 1.0, 0.07]}),
    ("ggd", {"init": "alibi"}),
    ("ggd", {"init": "mixed"}),
    ("ggd", {"init": "linear"}),
    ("ggd", {"init": "sampled"}),
    ("ggd", {"init": "mixed", "learn_mu": True}),
    ("bucketed", {"num_buckets": 9, "max_distance": 40}),
]


def label(setting):
    name, options = setting
    return "-".join([name, *(f"{key}={value}" for key, value in options.items())])


def tensors(prior):
    return {**dict(prior.named_parameters()), **dict(prior.named_buffers())}


@pytest.fixture(params=SETTINGS, ids=label)
def setting(request):
    return request.param


@pytest.fixture
def prior(setting):
    name, options = setting
    return make_prior(name, HEADS, **options)


@pytest.mark.parametrize("check", CHECKS)
def test_what_everyone_can_check_holds(setting, check):
    name, options = setting
    CHECKS[check](lambda heads: make_prior(name, heads, **options))


class Broken(Laplace):
    """A prior with one thing wrong."""

    def __init__(self, num_heads, wrong):
        super().__init__(num_heads, learned=True)
        self.wrong = wrong

    def _log_prior(self, distance):
        density = super()._log_prior(distance)
        match self.wrong:
            case "shape":
                return density[:1]
            case "precision":
                return density.to(next(self.parameters()).dtype).to(density.dtype)
            case "distances":
                return density + torch.arange(len(distance)) * 1e-2
            case "extremes":
                return density * (-density).exp().sum() / (-density).exp().sum()
            case "gradients":
                return 2 * density - density.detach()
        return density

    def _reach(self, drop):
        return super()._reach(drop) + (self.wrong == "reach")

    def load_state_dict(self, state, **options):
        return super().load_state_dict({n: v + (self.wrong == "state") for n, v in state.items()})

    def reset_parameters(self):
        if getattr(self, "wrong", "") != "start":
            super().reset_parameters()


@pytest.mark.parametrize("wrong", CHECKS)
def test_each_check_finds_what_it_is_for(wrong):
    assert wrong in failures(lambda heads: Broken(heads, wrong))


def test_a_prior_that_is_right_fails_none():
    assert failures(lambda heads: Broken(heads, "")) == {}


class TestPriorContract:
    def test_works_for_one_head(self, setting):
        name, options = setting
        if "slopes" not in options:
            assert make_prior(name, 1, **options).table(4).shape == (1, 4)

    def test_lives_on_the_device_of_its_parameters(self, prior):
        table = prior.to("meta").table(6)
        assert table.device.type == "meta"
        assert table.shape == (HEADS, 6)

    def test_table_is_log_prior_of_every_distance(self, prior):
        scatter(prior)
        assert torch.equal(prior.table(500), prior.log_prior(torch.arange(500)))
        assert torch.equal(prior.table(500), prior(torch.arange(500.0)))
        assert torch.equal(prior.table(1), prior.table(500)[:, :1])

    @pytest.mark.parametrize("tolerance", [0, 1, -1, 2, math.nan])
    def test_reach_needs_a_tolerance_between_0_and_1(self, prior, tolerance):
        with pytest.raises(ValueError, match="strictly between 0 and 1"):
            prior.reach(tolerance)

    def test_can_be_built_on_the_meta_device(self, setting, prior):
        name, options = setting
        with torch.device("meta"):
            empty = make_prior(name, HEADS, **options)
        assert all(values.is_meta for values in tensors(empty).values())
        loaded = copy.deepcopy(empty).to_empty(device="cpu")
        loaded.load_state_dict(prior.state_dict())
        assert torch.equal(loaded.table(50), prior.table(50))
        if options.get("init") != "sampled":  # the meta one drew its own
            empty.to_empty(device="cpu").reset_parameters()
            assert torch.equal(empty.table(50), prior.table(50))

    @pytest.mark.parametrize("poison", [math.nan, math.inf])
    def test_check_names_parameter_and_head(self, prior, poison):
        prior.check()
        for name, values in tensors(prior).items():
            if not values.numel():
                continue
            broken = copy.deepcopy(prior)
            with torch.no_grad():
                tensors(broken)[name][2] = poison
            with pytest.raises(ValueError, match=rf"{name} of head 2 .* is {poison}"):
                broken.check()

    def test_the_first_dimension_of_a_parameter_is_the_head(self, prior):
        assert all(len(values) == HEADS for values in prior.parameters())

    def test_draws_one_labelled_normalised_line_per_head(self, prior):
        ax = Figure().add_subplot()
        assert prior.draw(length=30, ax=ax) is ax
        lines = ax.get_lines()
        assert [line.get_label() for line in lines] == [f"head {h}" for h in range(HEADS)]
        for line in lines:
            assert len(line.get_ydata()) == 30
            assert sum(line.get_ydata()) == pytest.approx(1, abs=1e-5)

    @pytest.mark.parametrize("distance", [torch.tensor(3), torch.zeros(2, 2)])
    def test_distances_have_one_dimension(self, prior, distance):
        with pytest.raises(ValueError, match="one dimension"):
            prior.log_prior(distance)

    @pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
    def test_distances_are_finite_and_not_negative(self, prior, bad):
        with pytest.raises(ValueError, match="finite and at least 0"):
            prior.log_prior(torch.tensor([0.0, bad]))

    def test_a_table_has_a_length(self, prior):
        with pytest.raises(ValueError, match="length must be at least 1, not 0"):
            prior.table(0)

    def test_repr_names_the_heads(self, prior):
        assert f"{type(prior).__name__}(num_heads={HEADS}" in repr(prior)

    def test_compiles_to_one_graph(self, prior):
        scatter(prior)
        # "eager" traces only: graph breaks would show, code generation is not what we test.
        compiled = torch.compile(prior, backend="eager", fullgraph=True)
        distance = torch.arange(20)
        torch.testing.assert_close(compiled(distance), prior(distance))


@pytest.mark.parametrize("num_heads", [0, -2, 2.0, "8", None, True])
@pytest.mark.parametrize("name", PRIORS)
def test_heads_are_a_positive_integer(name, num_heads):
    with pytest.raises(ValueError, match="num_heads must be an integer of at least 1"):
        make_prior(name, num_heads)
