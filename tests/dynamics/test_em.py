import math

import pytest
import torch

from bayesattn.dynamics.em import (
    CHAIN,
    EM,
    SCHEDULES,
    SGD,
    TWO_FORWARDS,
    Schedule,
    chain_floor,
    chain_problem,
    initial_weights,
    step,
    step_of_norm,
)
from bayesattn.dynamics.head import Weights
from bayesattn.tunnels import StickyChain
from tests.dynamics.toy import TOY, five_tokens


@pytest.fixture
def scene(generator):
    return chain_problem(40, generator), initial_weights(CHAIN, generator)


def gradients(problem, weights):
    """By autograd, through a loss of its own."""
    leaves = Weights(*(w.detach().requires_grad_() for w in weights))
    q, k, v = (problem.x @ w.T for w in leaves[:3])
    scores = q @ k.T / math.sqrt(q.shape[-1])
    if problem.log_prior is not None:
        scores = scores + problem.log_prior
    logits = scores.softmax(-1) @ v @ leaves.w_o.T
    loss = torch.nn.functional.cross_entropy(logits, problem.labels)
    return Weights(*torch.autograd.grad(loss, leaves))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_learning_rates_are_one_step_of_sgd_bit_by_bit(generator, dtype):
    problem = five_tokens(generator, dtype)
    weights = initial_weights(TOY, generator, dtype)
    head = problem.head(weights)
    flat = torch.cat([w.flatten() for w in weights])
    gradient = torch.cat([g.flatten() for g in head.gradients[:4]])
    plain = flat - 0.3 * gradient
    for schedule in (Schedule(value=2.0, query=2.0, key=2.0, output=2.0), Schedule()):
        base = 0.3 / schedule.value
        moved = step(problem, weights, schedule, base)
        assert torch.equal(torch.cat([w.flatten() for w in moved]), plain)


def test_the_step_is_torchs_sgd_with_parameter_groups(generator):
    problem = five_tokens(generator)
    weights = initial_weights(TOY, generator, torch.float64)
    schedule = Schedule(query=3.0, key=0.5, value=10.0, output=2.0)
    parameters = [torch.nn.Parameter(w.clone()) for w in weights]
    factors = (3.0, 0.5, 10.0, 2.0)
    optimizer = torch.optim.SGD(
        [{"params": [p], "lr": 0.1 * f} for p, f in zip(parameters, factors, strict=True)]
    )
    moved = weights
    for _ in range(5):
        for parameter, gradient in zip(parameters, gradients(problem, parameters), strict=True):
            parameter.grad = gradient
        optimizer.step()
        moved = step(problem, moved, schedule, 0.1)
    for one, other in zip(moved, parameters, strict=True):
        torch.testing.assert_close(one, other.detach(), rtol=1e-12, atol=1e-14)
    assert all((one - other).abs().max() > 1e-8 for one, other in zip(moved, weights, strict=True))


def test_two_forwards_look_again_after_the_value_step(scene):
    problem, weights = scene
    weights = Weights(*(w.double() for w in weights))
    problem = problem._replace(x=problem.x.double(), log_prior=problem.log_prior.double())
    first = gradients(problem, weights)
    values = weights.w_v - 5.0 * first.w_v
    second = gradients(problem, weights._replace(w_v=values))
    moved = step(problem, weights, SCHEDULES[TWO_FORWARDS], 0.5)
    torch.testing.assert_close(moved.w_v, values)
    for name in ("w_q", "w_k", "w_o"):
        expected = getattr(weights, name) - 0.5 * getattr(second, name)
        torch.testing.assert_close(getattr(moved, name), expected)
    once = step(problem, weights, SCHEDULES[EM], 0.5)
    assert torch.equal(once.w_v, moved.w_v)
    assert (once.w_o - moved.w_o).abs().max() > 1e-4


@pytest.mark.parametrize("name", [n for n, s in SCHEDULES.items() if s.forwards == 1])
def test_a_step_of_given_norm_has_it_and_keeps_the_direction(scene, name):
    problem, weights = scene
    schedule = SCHEDULES[name]
    moved = step_of_norm(problem, weights, schedule, 0.02)
    free = step(problem, weights, schedule, 0.01)
    short, long = (
        torch.cat([(b - a).flatten() for a, b in zip(weights, to, strict=True)]).double()
        for to in (moved, free)
    )
    assert short.norm().item() == pytest.approx(0.02, rel=1e-4)
    assert torch.cosine_similarity(short, long, dim=0).item() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("rates", [None, [0.1, 0.7]])
def test_the_loss_of_several_sequences_is_their_mean(generator, rates):
    several = chain_problem(10, generator, sequences=3)
    weights = initial_weights(CHAIN, generator)
    alone = [
        step(several._replace(x=x[0], labels=labels[0]), weights, SCHEDULES[EM], 0.1)
        for x, labels in zip(several.x, several.labels, strict=True)
    ]
    expected = Weights(*(torch.stack(parts).mean(0) for parts in zip(*alone, strict=True)))
    if rates is None:
        moved = step(several, weights, SCHEDULES[EM], 0.1)
    else:
        wide = Weights(*(w.expand(2, *w.shape) for w in weights))
        moved = step(several, wide, SCHEDULES[EM], torch.tensor(rates)[:, None, None])
        moved = Weights(*(w[0] for w in moved))
    for one, other in zip(moved, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_many_rates_are_as_many_steps(scene):
    problem, weights = scene
    rates = [0.01, 0.3, 4.0]
    wide = Weights(*(w.expand(3, *w.shape) for w in weights))
    for take in (step, step_of_norm):
        together = take(problem, wide, SCHEDULES[EM], torch.tensor(rates)[:, None, None])
        for row, rate in enumerate(rates):
            alone = take(problem, weights, SCHEDULES[EM], rate)
            for one, other in zip(together, alone, strict=True):
                torch.testing.assert_close(one[row], other)


def test_schedules_are_what_their_names_say():
    assert SCHEDULES[SGD].rates(0.5) == (0.5, 0.5, 0.5, 0.5)
    assert SCHEDULES[EM].rates(0.01) == (0.01, 0.01, 0.1, 0.01)
    assert SCHEDULES["output fast"].rates(1.0) == (1, 1, 1, 10)
    assert SCHEDULES["queries and keys fast"].rates(1.0) == (10, 10, 1, 1)
    assert SCHEDULES[TWO_FORWARDS].rates(1.0) == SCHEDULES[EM].rates(1.0)


def test_bad_schedules_are_refused(scene):
    with pytest.raises(ValueError, match="forwards must be 1 or 2, not 3"):
        Schedule(forwards=3)
    with pytest.raises(ValueError, match="choose a schedule of one forward"):
        step_of_norm(*scene, SCHEDULES[TWO_FORWARDS], 0.1)


def test_shapes(generator):
    toy = five_tokens(generator)
    head = toy.head(initial_weights(TOY, generator, torch.float64))
    assert head.alpha.shape == (5, 5) and (head.alpha > 0).all()
    assert head.logits.shape == (5, 3)
    assert toy.labels.max() < 3
    chain = chain_problem(30, generator)
    head = chain.head(initial_weights(CHAIN, generator))
    assert head.alpha.shape == (30, 30) and (head.alpha.triu(1) == 0).all()
    assert (head.q.shape, head.v.shape, head.logits.shape) == ((30, 10), (30, 15), (30, 8))


@pytest.mark.parametrize(("draw", "sizes"), [(five_tokens, TOY), (None, CHAIN)])
def test_losses_start_at_the_uniform_predictor(generator, draw, sizes):
    problem = draw(generator) if draw else chain_problem(200, generator)
    weights = initial_weights(sizes, generator, problem.x.dtype)
    assert problem.head(weights).loss.item() == pytest.approx(math.log(sizes.outcomes), abs=0.03)
    silent = weights._replace(w_o=torch.zeros_like(weights.w_o))
    loss = problem.head(silent).loss.item()
    assert loss == pytest.approx(math.log(sizes.outcomes), abs=1e-6)


def test_the_floor_in_nats_and_bits():
    assert chain_floor() == pytest.approx(1.88325, abs=1e-5)
    assert chain_floor() / math.log(2) == pytest.approx(2.71696, abs=1e-5)
    assert StickyChain().transition[0].max() == pytest.approx(0.3, abs=1e-12)  # Bayes' accuracy
    # the chain that stays as the published generator does has another floor
    published = StickyChain(stay=0.3498).conditional_entropy
    assert published * math.log(2) == pytest.approx(1.8292, abs=1e-4)


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
