import pytest
import torch
from scipy import stats

from bayesattn.probes import readout


def test_order_is_spearman_without_a_sign(generator):
    x, y = torch.randn(2, 40, generator=generator)
    found = readout.order(x, -x.exp() + 0.1 * y)
    expected = stats.spearmanr(x, -x.exp() + 0.1 * y).statistic
    assert found.value == pytest.approx(abs(expected), abs=1e-9)
    assert found.p == pytest.approx(1 / 500) and found.interval.low > 0.9
    nothing = readout.order(x, y)
    assert nothing.p > 0.05 and nothing.nulls["exchanged"] == pytest.approx(0.13, abs=0.02)


def test_ties_share_their_rank(generator):
    x, y = torch.randint(4, (2, 50), generator=generator).double()
    expected = abs(stats.spearmanr(x, y).statistic)
    assert readout.order(x, y).value == pytest.approx(expected, abs=1e-9)


def test_what_only_follows_the_group_is_no_order(generator):
    groups = torch.arange(5).repeat_interleave(30)
    noise = torch.randn(2, 150, generator=generator) * 0.3
    x, y = groups + noise[0], groups + noise[1]
    assert readout.order(x, y).value > 0.9
    given = readout.order(x, y, groups)
    assert given.value < 0.2 and given.p > 0.05
    both = readout.order(x, x + groups, groups)
    assert both.value > 0.8 and both.p < 0.01


def test_the_null_keeps_the_groups(generator):
    groups = torch.tensor([0, 1, 1, 2, 2, 2, 0])
    orders = readout.shuffled_inside(groups, 200, generator)
    assert (groups[orders] == groups).all()
    assert (orders.sort(dim=1).values == torch.arange(7)).all()
    assert len({tuple(row) for row in orders.tolist()}) == 2 * 2 * 6  # all there are


def test_nothing_varies_nothing_is_measured():
    x = torch.arange(6.0)
    assert readout.order(x, torch.ones(6)) is None
    assert readout.order(x, torch.arange(6) // 2, torch.arange(6) // 2) is None
    assert readout.order(x[:3], x[:3]) is None


@pytest.mark.parametrize("standardise", [True, False])
def test_first_component_is_that_of_each_set(standardise, generator):
    states = torch.randn(3, 20, 7, generator=generator).double() * torch.arange(1, 8)
    found = readout.first_component(states, standardise=standardise)
    for at, one in enumerate(states):
        rows = one - one.mean(0)
        rows = rows / rows.std(0, correction=0) if standardise else rows
        u, s, _ = torch.linalg.svd(rows, full_matrices=False)
        assert float(found.share[at]) == pytest.approx(float(s[0] ** 2 / (s**2).sum()))
        same = (found.scores[at] @ u[:, 0]).abs() / s[0]
        assert float(same) == pytest.approx(1.0)
