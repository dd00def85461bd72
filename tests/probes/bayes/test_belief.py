"""Where a belief lives is found where it was put, and nowhere else."""

import pytest
import torch
from torch import Generator

from bayesattn.bits import entropy
from bayesattn.probes.bayes import belief
from bayesattn.probes.measured import NotApplicableError
from bayesattn.tunnels import Bijection, Dice
from tests.probes.bayes.observers import Carrier


@pytest.fixture(scope="module")
def batch():
    return Dice(10).sample(240, Generator().manual_seed(0))


def test_the_plane_is_where_log_odds_were_put(batch):
    _, states = belief.heard(Carrier(Dice(10)), batch.inputs, batch.scored, [0], "residual")
    plane = belief.plane_of(states[0], batch.posterior)
    assert plane.shape == (1, 8) and float(plane[0, 0].abs()) > 0.99
    torch.testing.assert_close(plane @ plane.T, torch.eye(1).double())


def uniform(part):
    return torch.full_like(part.posterior, 0.5)


def test_cutting_it_costs_all_evidence_and_random_directions_little(batch):
    (found,) = belief.locate(Carrier(Dice(10)), batch, uniform, [0])
    assert found.plane.extra.value == pytest.approx(1, abs=0.1)
    assert found.plane.extra.interval.low > 0.5 > max(found.plane.random_extra) - 0.4
    assert found.plane.moved > 3 * sum(found.plane.random_moved) / len(found.plane.random_moved)
    assert found.order.value < 0.5  # entropy is even in the log odds: a line cannot tell it


def test_cuts_by_hand():
    x = torch.tensor([[[3.0, 1.0]], [[5.0, 2.0]]])
    cut = belief.cutting(torch.tensor([[1.0, 0.0]]), x.mean(0))
    assert cut(x).tolist() == [[[4.0, 1.0]], [[4.0, 2.0]]]
    everywhere = belief.cutting(torch.tensor([[1.0, 0.0]]), 0.0)
    assert everywhere(x)[..., 0].abs().max() == 0
    half = belief.cutting(torch.tensor([[1.0, 0.0]]), 0.0, 0.5)
    assert half(x)[..., 0].flatten().tolist() == [1.5, 2.5]


def test_an_axis_is_the_least_squares_of_states_on_the_target(batch):
    """Whatever length tells is taken off: a code of the step alone gives no axis."""
    bits = entropy(batch.posterior)
    generator = Generator().manual_seed(1)
    states = torch.randn(*bits.shape, 4, generator=generator) * 0.01
    states[..., 2] += bits
    states[..., 3] += 5 * torch.arange(bits.shape[1])
    axis = belief.axis_of(states, bits)
    assert float(axis[0, 2]) > 0.99
    assert belief.order_given_step(states, axis, bits).value > 0.99
    by_step = bits.mean(0).expand_as(bits)
    assert belief.axis_of(states, by_step) is None


def test_random_directions_lie_where_states_vary_and_cuts_of_them_move_as_far(batch):
    reader = Carrier(Dice(10))
    before, states = belief.heard(reader, batch.inputs, batch.scored, [0], "residual")
    flat = states[0].clone()
    flat[..., 5:] = 1.0
    basis = belief.random_basis(flat, 2, Generator().manual_seed(0))
    assert float(basis[:, 5:].abs().max()) < 1e-9
    moves = []
    site = reader.sites()[0]
    bench = belief.Bench(reader, batch, uniform(batch), before, states[0], site)
    own = bench.read

    def listen(edit):
        x = states[0].double()
        moves.append(float((edit(x) - x).square().sum(-1).mean().sqrt()))
        return own(edit)

    bench.read = listen
    bench.cut(torch.eye(8)[:1].double())
    assert len(moves) == 1 + belief.DRAWS and moves == pytest.approx([moves[0]] * len(moves))


def test_no_edit_changes_nothing(batch):
    reader = Carrier(Dice(10))
    before, _ = belief.heard(reader, batch.inputs, batch.scored, [0], "residual")
    site = reader.sites()[0]
    for everywhere in (True, False):
        after = belief.changed(
            reader, batch.inputs, batch.scored, site, lambda x: x, everywhere=everywhere
        )
        assert torch.equal(after.log_probs, before.log_probs)


def test_a_belief_that_the_step_alone_tells_is_refused():
    tunnel = Bijection(4, 1)
    reader = Carrier(Dice(1))
    batch = tunnel.sample(16, Generator().manual_seed(0))
    flat = batch.posterior.mean(0).expand_as(batch.posterior)
    batch = type(batch)(batch.inputs % 2, batch.scored, flat[..., :2] * 2, batch.labels, {})
    with pytest.raises(NotApplicableError, match="depends on the step alone"):
        belief.locate(reader, batch, lambda part: part.posterior, [0])


def test_depths_are_spread_evenly():
    assert belief.depths(30) == [0, 6, 12, 17, 23, 29]
    assert belief.depths(2) == [0, 1] and belief.depths(1) == [0]
