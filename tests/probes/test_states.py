"""Axes and their order: planted ones are found, absent ones are not."""

import pytest
import torch

from bayesattn import linear
from bayesattn.linear import held_out_errors
from bayesattn.probes import states
from bayesattn.probes.criteria import calibrated
from bayesattn.probes.llm.capture import capture_prompts
from bayesattn.probes.llm.prompts import entropy_of, sample
from bayesattn.probes.readout import decodability
from tests.probes.llm.small import small_subject

FEW = {"layer": 0, "kind": "values", "draws": 40, "permutations": 199}


def entropy_axis(found):
    """Whether there is an axis, and entropy orders it, beyond chance."""
    return all(line.holds for line in calibrated([found], [], None))


def planted(generator, count=60, width=50, noise=0.5):
    bits = 8 * torch.rand(count, generator=generator, dtype=torch.float64)
    direction = torch.randn(width, generator=generator, dtype=torch.float64)
    rest = torch.randn(count, width, generator=generator, dtype=torch.float64)
    return (bits - 4)[:, None] * direction / 2 + noise * rest, bits


def test_a_planted_axis_is_found(generator):
    rows, bits = planted(generator)
    found = states.measure_states(rows.view(60, 5, 10), bits, **FEW)
    assert found.width == 50 and found.prompts == 60
    assert found[states.SHARE].value > 0.4 and found[states.SHARE].p == 0.005
    assert found[states.SPEARMAN].value > 0.97 and found[states.SPEARMAN].p == 0.005
    assert found[states.DECODABILITY].value > 0.8
    low, high = found[states.SPEARMAN].interval
    assert 0.9 < low < found[states.SPEARMAN].value < high + 0.01
    assert found[states.SHARE].nulls["noise"] < 0.12 > found[states.SHARE].nulls["shuffled"]
    assert entropy_axis(found)


def test_noise_has_none(generator):
    rows = torch.randn(60, 50, generator=generator)
    bits = torch.rand(60, generator=generator)
    found = states.measure_states(rows, bits, **FEW)
    noise = found[states.SHARE].nulls["noise"]
    assert found[states.SHARE].value == pytest.approx(noise, rel=0.15)
    assert found[states.SHARE].p > 0.01 and found[states.SPEARMAN].p > 0.01
    assert found[states.DECODABILITY].value < 0.1
    assert not entropy_axis(found)


def test_an_axis_that_entropy_does_not_order_is_no_entropy_axis(generator):
    rows, bits = planted(generator)
    found = states.measure_states(rows, bits[torch.randperm(60, generator=generator)], **FEW)
    assert found[states.SHARE].p == 0.005 and found[states.SPEARMAN].p > 0.01
    assert not entropy_axis(found)


def test_the_sign_of_the_axis_means_nothing(generator):
    rows, bits = planted(generator)
    up, down = (states.point(x, bits) for x in (rows, -rows))
    assert up == pytest.approx(down)
    assert states.plane(rows, bits)[0][0] == pytest.approx(states.plane(-rows, bits)[0][0])


def test_one_massive_dimension_decides_only_where_columns_are_not_standardised(generator):
    rows = torch.randn(40, 30, generator=generator, dtype=torch.float64)
    rows[:, 3] *= 1000
    found = states.point(rows, torch.rand(40, generator=generator, dtype=torch.float64))
    assert found[states.CENTRED[0]] > 0.99 and found[states.SHARE] < 0.2


def test_an_axis_that_is_only_length_is_gone_at_unit_length(generator):
    direction = torch.randn(30, generator=generator, dtype=torch.float64)
    jitter = 0.02 * torch.randn(40, 30, generator=generator, dtype=torch.float64)
    lengths = 1 + 9 * torch.rand(40, generator=generator, dtype=torch.float64)
    rows = lengths[:, None] * (direction + jitter)
    found = states.point(rows, lengths)
    assert found[states.NORM] > 0.99 and found[states.SPEARMAN] > 0.99
    assert found[states.SHARE] > 0.9 > 0.3 > found[states.UNIT_SHARE]


def test_control_stands_beside_every_number(generator):
    rows, bits = planted(generator)
    other, other_bits = torch.randn(60, 50, generator=generator), torch.rand(60)
    found = states.measure_states(rows, bits, control=(other, other_bits), **FEW)
    expected = states.point(other.double(), other_bits.double())
    for name, value in expected.items():
        assert found[name].nulls["random init"] == pytest.approx(value), name
    assert "random init" in found[states.DECODABILITY].nulls
    assert len(found.control_plane) == len(found.plane) == 60


def test_few_prompts_are_refused():
    with pytest.raises(ValueError, match="prompts: 5 is too few"):
        states.measure_states(torch.randn(5, 4), torch.rand(5), **FEW)


def test_decodability_is_one_minus_errors_over_spread(generator):
    rows, bits = planted(generator, count=20, width=25)
    found = decodability(rows, bits, states.exchanged([""] * 20, 19), draws=20)
    errors = held_out_errors(rows, bits[:, None]).square().sum()
    others = torch.stack([bits[torch.arange(20) != n].mean() for n in range(20)])
    assert found.value == pytest.approx(float(1 - errors / (bits - others).square().sum()))
    assert found.nulls["other prompts"] < 0.2 < found.value and found.p == 0.05


def test_prompts_are_exchanged_inside_their_source():
    sources = ["b", "a", "b", "a", "c", "b"]
    orders = states.exchanged(sources, 50)
    for order in orders.tolist():
        assert sorted(order) == list(range(6))
        assert [sources[place] for place in order] == sources
    assert len({tuple(order) for order in orders.tolist()}) > 5


def test_an_order_of_sources_alone_is_no_order_of_prompts(generator):
    which = torch.arange(60) % 3
    rows = torch.randn(60, 40, generator=generator).double()
    rows += 4 * which[:, None] * torch.randn(40, generator=generator).double()
    bits = which + torch.rand(60, generator=generator).double()
    free = states.measure_states(rows, bits, **FEW)
    inside = states.measure_states(rows, bits, sources=[str(n) for n in which.tolist()], **FEW)
    assert free[states.SPEARMAN].value == inside[states.SPEARMAN].value > 0.8
    assert free[states.SPEARMAN].p == 0.005 and inside[states.SPEARMAN].p > 0.01
    assert entropy_axis(free) and not entropy_axis(inside)


@pytest.mark.slow
def test_fresh_weights_have_no_entropy_axis():
    prompts = sample(small_subject(), length=8, candidates=40, each=8)
    beyond = 0
    for seed in range(40):
        subject = small_subject(1000 + seed, num_hidden_layers=2)
        seen = capture_prompts(subject, prompts.tokens, ["values", "logits"])
        bits = entropy_of(seen.logits)
        assert float(bits.std()) > 1e-3
        options = FEW | {"draws": 2, "sources": prompts.sources}
        beyond += entropy_axis(states.measure_states(seen.values[-1], bits, **options))
    assert beyond <= 2


# n, d: share of PC 1, of PC 1 and 2, participation; derived, not reported
NOISE = {
    (13, 1024): (0.098, 0.194, 11.9),
    (15, 1024): (0.087, 0.170, 13.8),
    (75, 1024): (0.0214, 0.042, 69),
    (75, 512): (0.025, 0.049, 65),
    (75, 192): (0.034, 0.066, 54),
}


@pytest.fixture
def rows(generator):
    scale = torch.logspace(0, 1.5, 30, dtype=torch.float64)
    return torch.randn(12, 30, generator=generator, dtype=torch.float64) * scale + 3.0


@pytest.mark.parametrize(("size", "expected"), NOISE.items())
def test_noise_is_the_table(size, expected):
    assert states.noise(*size) == pytest.approx(expected, rel=0.1)


def test_parts_are_the_whole(rows, monkeypatch, generator):
    whole = states.permuted_shares(rows, 7, torch.Generator().manual_seed(1), standardise=True)
    monkeypatch.setattr(linear, "AT_ONCE", 1)
    one = states.permuted_shares(rows, 7, torch.Generator().manual_seed(1), standardise=True)
    assert len(one.first) == len(whole.first) == 7
    assert len(list(linear.chunks(torch.ones(7, 12), 30))) == 7


def test_shuffled_columns_lose_an_axis(generator):
    axis = torch.randn(40, 1, generator=generator, dtype=torch.float64)
    rows = axis + 0.3 * torch.randn(40, 20, generator=generator, dtype=torch.float64)
    weights = torch.ones(1, 40, dtype=torch.float64)
    value = linear.shares(linear.gram(rows, weights, standardise=True), weights).first
    null = states.permuted_shares(rows, 50, generator, standardise=True).first
    assert float(value) > 0.8 and float(null.max()) < 0.25
