"""`PriorContract`: what every prior must do. A prior enters by being in `PRIORS`."""

import copy
import math

import pytest
import torch
from matplotlib.figure import Figure
from safetensors.torch import load_file, save_file
from torch.func import functional_call

from bayesattn.priors import PRIORS, make_prior

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
HEADS = 5


def label(setting):
    name, options = setting
    return "-".join([name, *(f"{key}={value}" for key, value in options.items())])


def tensors(prior):
    return {**dict(prior.named_parameters()), **dict(prior.named_buffers())}


def scatter(prior, seed=0):
    """Move every learned number, so that nothing holds only at the initial values."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for values in prior.parameters():
            values += 0.4 * torch.randn(values.shape, generator=generator).to(values)
    return prior


@pytest.fixture(params=SETTINGS, ids=label)
def setting(request):
    return request.param


@pytest.fixture
def prior(setting):
    name, options = setting
    return make_prior(name, HEADS, **options)


class TestPriorContract:
    def test_is_one_row_per_head_in_float32(self, prior):
        density = prior.log_prior(torch.tensor([0, 3, 1]))
        assert density.shape == (HEADS, 3)
        assert density.dtype == torch.float32

    def test_works_for_one_head(self, setting):
        name, options = setting
        if "slopes" not in options:
            assert make_prior(name, 1, **options).table(4).shape == (1, 4)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
    def test_half_precision_parameters_are_upcast(self, prior, dtype):
        rounded = scatter(prior).to(dtype)
        table = rounded.table(300)
        assert table.dtype == torch.float32
        torch.testing.assert_close(table, copy.deepcopy(rounded).float().table(300))

    def test_float64_parameters_give_float64(self, prior):
        assert scatter(prior).double().table(7).dtype == torch.float64
        assert prior.log_prior(torch.arange(7)).dtype == torch.float64
        assert prior.reach().dtype == torch.float64

    def test_autocast_does_not_round(self, prior):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            inside = prior.table(300)
        assert torch.equal(inside, prior.table(300))

    def test_lives_on_the_device_of_its_parameters(self, prior):
        table = prior.to("meta").table(6)
        assert table.device.type == "meta"
        assert table.shape == (HEADS, 6)

    def test_table_is_log_prior_of_every_distance(self, prior):
        scatter(prior)
        assert torch.equal(prior.table(500), prior.log_prior(torch.arange(500)))
        assert torch.equal(prior.table(500), prior(torch.arange(500.0)))
        assert torch.equal(prior.table(1), prior.table(500)[:, :1])

    def test_each_distance_stands_for_itself(self, prior):
        scatter(prior)
        some = torch.tensor([9, 0, 9, 130, 2])
        torch.testing.assert_close(prior.log_prior(some), prior.table(131)[:, some])

    @pytest.mark.parametrize("shift", [-300.0, -30.0, 30.0, 300.0])
    def test_is_finite_at_extreme_parameters(self, prior, shift):
        with torch.no_grad():
            for values in prior.parameters():
                values += shift
        distance = torch.tensor([0.0, 1.0, 2.0, 511.0, 1e6])
        density = prior.log_prior(distance)
        assert torch.isfinite(density).all()
        assert torch.isfinite(100 * density).all()  # what SSMax may multiply it by
        if density.requires_grad:
            (density.softmax(-1) * distance).sum().backward()
            for name, values in prior.named_parameters():
                if values.requires_grad:
                    assert torch.isfinite(values.grad).all(), name

    def test_gradients_of_all_parameters(self, prior):
        scatter(prior).double()
        learned = {n: p.detach() for n, p in prior.named_parameters() if p.requires_grad}
        if not learned:
            assert not prior.table(3).requires_grad
            return
        distance = torch.tensor([0, 1, 2, 5, 40, 1000])

        def density(*values):
            return functional_call(prior, dict(zip(learned, values, strict=True)), (distance,))

        values = [v.clone().requires_grad_() for v in learned.values()]
        assert torch.autograd.gradcheck(density, values)

    @pytest.mark.parametrize("tolerance", [0.5, 1e-3, 1e-6])
    def test_reach_agrees_with_a_scan(self, prior, tolerance):
        length = 4096
        scatter(prior, seed=3).double()
        table = prior.table(length).detach()
        inside = (table - table.amax(1, keepdim=True)).exp() >= tolerance
        scanned = inside.long().mul(torch.arange(length)).amax(1)
        assert scanned.tolist() == prior.reach(tolerance).clamp(max=length - 1).tolist()

    @pytest.mark.parametrize("tolerance", [0, 1, -1, 2, math.nan])
    def test_reach_needs_a_tolerance_between_0_and_1(self, prior, tolerance):
        with pytest.raises(ValueError, match="strictly between 0 and 1"):
            prior.reach(tolerance)

    def test_state_survives_a_file(self, setting, prior, tmp_path):
        scatter(prior)
        save_file(prior.state_dict(), tmp_path / "prior.safetensors")
        name, options = setting
        other = make_prior(name, HEADS, **options)
        other.load_state_dict(load_file(tmp_path / "prior.safetensors"))
        assert torch.equal(other.table(50), prior.table(50))

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

    def test_reset_restores_the_initial_values(self, prior):
        before = prior.table(50).detach()
        scatter(prior).reset_parameters()
        assert torch.equal(prior.table(50), before)

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
