"""Manifolds of known dimension and order are recovered; noise has neither."""

import numpy as np
import pytest
import torch
from scipy.stats import binom

from bayesattn.probes.measured import held_out, plain
from bayesattn.probes.readout import decode, fit, split, step_alone
from bayesattn.probes.values import (
    components,
    manifold,
    measure_values,
    participation,
)
from bayesattn.tunnels import Bijection
from tests.probes.common import BIJECTION, FILTER, WIDTH, model_of


def embedded(low, width, generator):
    """Rows of few dimensions in a random subspace of many."""
    turn = torch.linalg.qr(torch.randn(width, width, generator=generator, dtype=torch.float64)).Q
    return low.double() @ turn[: low.shape[-1]] + torch.arange(width)


@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_a_flat_manifold_of_known_dimension(dimension, generator):
    low = torch.randn(400, 5, dimension, generator=generator)
    x = embedded(low, 12, generator)
    found = manifold(x, torch.rand(400, 5, generator=generator), permutations=9)
    assert found.participation.value == pytest.approx(dimension, rel=0.03)
    assert found.share.value == pytest.approx(1 / dimension, abs=0.05)
    for measured in (found.participation, found.share):
        low_end, high_end = measured.interval
        assert low_end - 1e-9 <= measured.value <= high_end + 1e-9
    assert found.participation.nulls["white noise"] == pytest.approx(12, rel=0.01)


def test_components_are_those_of_numpy(generator):
    x = torch.randn(30, 4, 6, generator=generator) * torch.arange(1.0, 7.0)
    found = components(x)
    rows = x.flatten(0, 1).numpy().astype(float)
    values = np.linalg.eigvalsh(np.cov(rows.T, bias=True))[::-1]
    np.testing.assert_allclose(found.variances, values, rtol=1e-9)
    np.testing.assert_allclose(found.scores.flatten(0, 1).var(0, correction=0), values, rtol=1e-9)
    expected = values.sum() ** 2 / (values**2).sum()
    assert float(participation(found.variances)) == pytest.approx(expected)


def test_an_axis_ordered_by_entropy_is_found(generator):
    bits = 3 * torch.rand(200, 6, generator=generator, dtype=torch.float64)
    low = torch.stack([5 * bits, torch.randn(200, 6, generator=generator)], dim=-1)
    found = manifold(embedded(low, 10, generator), bits, permutations=99)
    assert found.order.value > 0.99 and found.order.p == 0.01 and found.rank_order > 0.99
    assert found.given_position.value > 0.99 and found.given_position.p == 0.01
    assert found.decodability.value > 0.99 and found.decodability.p == 0.01
    assert found.decodability.nulls["other sequences"] < 0.05


def test_a_code_of_the_position_is_not_ordered_by_entropy(generator):
    """Entropy that falls with the step, and states that know the step only."""
    step = torch.arange(6.0).expand(200, -1)
    bits = (6 - step) + torch.randn(200, 6, generator=generator) * 0.3
    low = torch.stack([step, 0.1 * torch.randn(200, 6, generator=generator)], dim=-1)
    found = manifold(embedded(low, 10, generator), bits, permutations=99)
    assert found.order.value > 0.95
    assert found.given_position.value < 0.2 and found.given_position.p > 0.01
    assert found.decodability.value == pytest.approx(
        found.decodability.nulls["step alone"], abs=0.02
    )
    constant = manifold(embedded(low, 10, generator), 6 - step, permutations=9)
    assert constant.given_position is None
    # entropies of other sequences are the same ones: nothing beyond the step can be claimed
    assert constant.order.p == constant.decodability.p == 1


def test_noise_has_no_order(generator):
    """At level 5%, 200 draws of pure noise are called ordered, or decodable, about ten times."""
    ordered = decodable = 0
    for draw in range(200):
        x = torch.randn(24, 4, 5, generator=generator)
        bits = torch.arange(4.0) + torch.randn(24, 4, generator=generator)
        found = manifold(x, bits, permutations=39, seed=draw)
        ordered += found.given_position.p <= 0.05
        decodable += found.decodability.p <= 0.05
        assert found.share.value < 3 * found.share.nulls["white noise"]
    for count in (ordered, decodable):
        assert binom.ppf(0.001, 200, 0.05) <= count <= binom.ppf(0.999, 200, 0.05)


def test_held_out_sequences_are_not_fitted_on(generator):
    """More inputs than tokens: what is learnt by heart is worth nothing on other sequences."""
    x = torch.randn(20, 3, 80, generator=generator)
    y = torch.randn(20, 3, 1, generator=generator)
    train, test = split(20)
    error, spread = fit(x[train], y[train].double()).squares(x[train], y[train].double())
    assert float(error.sum() / spread.sum()) < 0.1
    assert decode(x, y, permutations=9).value < 0.1
    assert {*range(20)[train]}.isdisjoint(range(20)[test])


def test_ridge_by_the_normal_equations(generator):
    x = torch.randn(30, 4, 5, generator=generator, dtype=torch.float64)
    y = x[..., :2] * 3 - 1 + 0.01 * torch.randn(30, 4, 2, generator=generator)
    readout = fit(x, y)
    rows = x.flatten(0, 1) - x.mean((0, 1))
    ridge = 1e-3 * rows.square().sum(0).mean() * torch.eye(5)
    weight = torch.linalg.inv(rows.T @ rows + ridge) @ rows.T @ y.flatten(0, 1)
    torch.testing.assert_close(readout.weight, weight)
    assert decode(x, y, permutations=9).value > 0.999
    steps = torch.arange(4.0).expand(30, -1)[..., None]
    assert step_alone(steps) == pytest.approx(1)


@pytest.mark.parametrize(("name", "kinds"), [("grouped", 3), ("late", 3), ("lstm", 1)])
def test_every_kind_of_state_beside_its_nulls(name, kinds):
    model, initial = model_of(name), model_of(name, seed=1)
    found = measure_values(model, held_out(FILTER, 48), initial=initial, permutations=9)
    first = [m for m in found if m.layer == 0]
    assert len(first) == kinds and {m.layer for m in found} == {*range(len(model.body.layers))}
    assert {m.width for m in first} == ({WIDTH, WIDTH // 2} if name == "grouped" else {WIDTH})
    for m in found:
        assert "untrained" in m.share.nulls and "untrained" in m.given_position.nulls
        assert {"step alone", "other sequences", "untrained"} <= m.decodability.nulls.keys()
        assert plain(m)["share"]["value"] == m.share.value
    itself = measure_values(model, held_out(FILTER, 48), initial=model, permutations=9)[0]
    assert itself.order.nulls["untrained"] == pytest.approx(itself.order.value)
    assert itself.decodability.nulls["untrained"] == pytest.approx(itself.decodability.value)


def test_keys_that_never_return_leave_nothing_given_the_position():
    never, again = Bijection(5), BIJECTION
    assert measure_values(model_of("ggd", never), held_out(never, 16))[0].given_position is None
    assert measure_values(model_of("ggd", again), held_out(again, 16))[0].given_position is not None


def test_too_few_sequences():
    with pytest.raises(ValueError, match="too few to tell from chance, take 16 or more"):
        measure_values(model_of("ggd"), held_out(FILTER, 8))
