"""Order and drift are 0 for exact Bayes, by hand for others; other orders keep the posterior."""

import math
from itertools import pairwise

import pytest
import torch
from torch import Generator

from bayesattn.probes.bayes.coherence import measure_drift, measure_order, reordered
from bayesattn.tunnels import HMM, Bijection, Dice, Labels, Markov, Mess3
from tests.probes.bayes.observers import Exact, LastSeen

TUNNELS = [
    Dice(12),
    Dice(9, 4, 0.5),
    Markov(14),
    Labels(10),
    Bijection(6),
    Bijection(5, 8, replacement=True),
]
each = pytest.mark.parametrize("tunnel", TUNNELS, ids=repr)


def inputs_of(tunnel, count=12):
    return tunnel.sample(count, Generator().manual_seed(3)).inputs


@each
def test_other_orders_leave_the_posterior_as_it_is(tunnel):
    inputs = inputs_of(tunnel)
    mixed = reordered(tunnel, inputs, 5, Generator().manual_seed(0))
    assert mixed.shape == (5, *inputs.shape) and not torch.equal(mixed[0], mixed[1])
    for one in mixed:
        exact = tunnel.exact(one)[:, -1]
        torch.testing.assert_close(exact, tunnel.exact(inputs)[:, -1], atol=1e-12, rtol=0)


@each
def test_exact_bayes_knows_no_order_and_does_not_drift(tunnel):
    inputs = inputs_of(tunnel)
    order = measure_order(Exact(tunnel), tunnel, inputs, 4, 0)
    assert order.share < 1e-9 and order.single < 1e-9 and order.averaged < 1e-9
    drift = measure_drift(Exact(tunnel), tunnel, inputs)
    assert drift is None if isinstance(tunnel, Markov) else drift.share < 1e-7


def test_what_expects_its_own_mind_to_change_drifts():
    """Less sure than Bayes of a value that was shown, and sure again of what it imagined."""
    tunnel = Bijection(5, 8, replacement=True)
    drift = measure_drift(Exact(tunnel, 0.2), tunnel, inputs_of(tunnel))
    assert drift.share > 1e-4 and drift.bits > 1e-4


def test_drift_of_the_last_draw_by_hand():
    """Now 0.9 for the last; in one step 0.9 · 0.9 + 0.1 · 0.1 for it, in three 0.756."""
    tunnel = Dice(8)
    drift = measure_drift(LastSeen(tunnel), tunnel, inputs_of(tunnel))
    stays = 0.9
    for _ in range(3):  # eight leaves: three steps
        stays = 0.9 * stays + 0.1 * (1 - stays)
    bits = stays * math.log2(stays / 0.9) + (1 - stays) * math.log2((1 - stays) / 0.1)
    assert drift.bits == pytest.approx(bits, abs=1e-9)
    moved = 8 / 10 * math.log2(9)  # KL between the two predictions it knows
    away = drift.bits / drift.share / moved
    before = 0.9 * (0.9**2 + 0.1**2) + 0.1 * (2 * 0.9 * 0.1)
    assert away == pytest.approx(1 - before, abs=1e-9)


def test_what_sees_the_last_draw_only_is_moved_by_order():
    tunnel = Dice(12)
    order = measure_order(LastSeen(tunnel), tunnel, inputs_of(tunnel, 32), 6, 0)
    assert order.share > 0.4 and order.averaged < order.single


def test_what_reads_nothing_is_still():
    tunnel = Dice(12)
    inputs = inputs_of(tunnel)
    assert measure_order(Exact(tunnel, 0.0), tunnel, inputs, 4, 0).share == 0
    assert measure_drift(Exact(tunnel, 0.0), tunnel, inputs).share < 1e-9


@pytest.mark.parametrize("tunnel", [HMM(3, 3, 6), Mess3()], ids=repr)
def test_where_order_is_evidence_nothing_is_exchanged(tunnel):
    inputs = inputs_of(tunnel)
    assert measure_order(Exact(tunnel), tunnel, inputs, 4, 0) is None
    assert measure_drift(Exact(tunnel), tunnel, inputs) is None


def test_excursions_keep_moves_and_the_last_state():
    tunnel = Markov(20, 3)
    inputs = inputs_of(tunnel)
    for one in reordered(tunnel, inputs, 4, Generator().manual_seed(1)):
        assert torch.equal(one[:, -1], inputs[:, -1])
        for row, was in zip(one.tolist(), inputs.tolist(), strict=True):
            moves = [sorted(pairwise(path)) for path in (row, was)]
            assert moves[0] == moves[1]
