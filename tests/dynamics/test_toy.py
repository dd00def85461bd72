import math

import pytest
import torch

from bayesattn.dynamics.toy import CHAIN, TOY, chain_floor, chain_problem, draw_weights, five_tokens
from bayesattn.tunnels import StickyChain


def test_shapes(generator):
    toy = five_tokens(generator)
    head = toy.head(draw_weights(TOY, generator, torch.float64))
    assert head.alpha.shape == (5, 5) and (head.alpha > 0).all()
    assert head.logits.shape == (5, 3)
    assert toy.labels.max() < 3
    chain = chain_problem(30, generator)
    head = chain.head(draw_weights(CHAIN, generator))
    assert head.alpha.shape == (30, 30) and (head.alpha.triu(1) == 0).all()
    assert (head.q.shape, head.v.shape, head.logits.shape) == ((30, 10), (30, 15), (30, 8))


@pytest.mark.parametrize(("draw", "sizes"), [(five_tokens, TOY), (None, CHAIN)])
def test_losses_start_at_the_uniform_predictor(generator, draw, sizes):
    problem = draw(generator) if draw else chain_problem(200, generator)
    weights = draw_weights(sizes, generator, problem.x.dtype)
    assert problem.head(weights).loss.item() == pytest.approx(math.log(sizes.outcomes), abs=0.03)
    silent = weights._replace(w_o=torch.zeros_like(weights.w_o))
    loss = problem.head(silent).loss.item()
    assert loss == pytest.approx(math.log(sizes.outcomes), abs=1e-6)


def test_the_floor_in_nats_and_bits():
    assert chain_floor() == pytest.approx(1.88325, abs=1e-5)
    assert chain_floor() / math.log(2) == pytest.approx(2.71696, abs=1e-5)
    assert StickyChain().transition[0].max() == pytest.approx(0.3, abs=1e-12)  # Bayes' accuracy
    # the chain that stays as the published generator does has another floor
    assert chain_floor(0.3498) == pytest.approx(1.8292, abs=1e-4)


def test_labels_are_the_next_symbols(generator):
    """Without looking at noise: the symbol nearest to x_t+1 is mostly the label of t."""
    problem = chain_problem(2000, generator)
    nearest = torch.cdist(problem.x, StickyChain().means).argmin(-1)
    assert (nearest[1:] == problem.labels[:-1]).float().mean() > 0.97
    stays = (nearest[1:] == nearest[:-1]).float().mean().item()
    assert stays == pytest.approx(0.3, abs=0.035)  # 0.3498 would be five deviations off


def test_several_sequences_are_fresh_ones(generator):
    several = chain_problem(20, generator, sequences=3)
    assert several.x.shape == (3, 1, 20, 20) and several.labels.shape == (3, 1, 20)
    assert not torch.equal(several.labels[0], several.labels[1])
    again = chain_problem(20, torch.Generator().manual_seed(0), sequences=3)
    assert torch.equal(several.x, again.x)
