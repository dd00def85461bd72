import math

import pytest
import torch

from bayesattn.dynamics.em import (
    CHAIN,
    EM,
    SCHEDULES,
    SGD,
    chain_problem,
    initial_weights,
    step,
)
from bayesattn.dynamics.head import Weights
from bayesattn.dynamics.sweep import (
    Curves,
    best_rate,
    descend,
    doublings,
    measure,
    steps_to,
    times_as_fast,
)
from tests.dynamics.toy import TOY, five_tokens


def curves(*rows):
    loss = torch.tensor(rows, dtype=torch.float64)
    return Curves(loss, loss, loss)


def test_a_sweep_is_each_rate_on_its_own(generator):
    problem, other = chain_problem(30, generator), chain_problem(30, generator, sequences=2)
    start = initial_weights(CHAIN, generator)
    found = descend(
        problem,
        start,
        SCHEDULES[EM],
        [0.05, 0.2],
        at=[0, 3, 7],
        watched={"train": problem, "test": other},
    )
    for row, rate in enumerate([0.05, 0.2]):
        weights = start
        for taken in range(8):
            if taken in (0, 3, 7):
                look = [0, 3, 7].index(taken)
                head = problem.head(weights)
                torch.testing.assert_close(
                    found["train"].loss[row, look], head.loss.double(), rtol=0, atol=1e-5
                )
                losses = [
                    other._replace(x=other.x[n, 0], labels=other.labels[n, 0]).head(weights).loss
                    for n in range(2)
                ]
                expected = (losses[0] + losses[1]).double() / 2
                torch.testing.assert_close(
                    found["test"].loss[row, look], expected, rtol=0, atol=1e-5
                )
            weights = step(problem, weights, SCHEDULES[EM], rate)


def test_measures_by_loops(generator):
    problem = chain_problem(12, generator)
    weights = initial_weights(CHAIN, generator)
    log_p = problem.head(weights).logits.double().log_softmax(-1)
    found = measure(problem, Weights(*(w[None] for w in weights)))
    loss = -sum(log_p[i, label] for i, label in enumerate(problem.labels)) / 12
    right = sum(int(log_p[i].argmax() == label) for i, label in enumerate(problem.labels)) / 12
    entropy = -(log_p.exp() * log_p).sum() / 12
    assert found.loss.item() == pytest.approx(loss.item(), abs=1e-6)
    assert found.accuracy.item() == pytest.approx(right)
    assert found.entropy.item() == pytest.approx(entropy.item(), abs=1e-6)


def test_five_tokens_are_learnt_by_heart(generator):
    problem = five_tokens(generator)
    start = initial_weights(TOY, generator, torch.float64)
    watched = {"train": problem}
    found = descend(problem, start, SCHEDULES[SGD], [3.0], at=[0, 500], watched=watched)["train"]
    assert found.loss[0, 0] == pytest.approx(math.log(3), abs=0.05)
    assert found.loss[0, 1] < 0.7


def test_a_diverged_rate_stays_in_its_row(generator):
    problem = chain_problem(30, generator)
    start = initial_weights(CHAIN, generator)
    both, alone = (
        descend(problem, start, SCHEDULES[SGD], rates, at=[0, 20], watched={"train": problem})
        for rates in ([1e30, 0.5], [0.5])
    )
    assert not both["train"].loss[0, 1].isfinite()
    expected = alone["train"].loss[0]
    torch.testing.assert_close(both["train"].loss[1], expected, rtol=0, atol=1e-5)
    assert best_rate(both["train"]) == 1


def test_bad_sweeps_are_refused(generator):
    problem, start = chain_problem(3, generator), initial_weights(CHAIN, generator)
    for rates, at in (([0.0], [1]), ([1.0], [2, 1]), ([1.0], [1, 1])):
        with pytest.raises(ValueError, match="rates must be positive"):
            descend(problem, start, SCHEDULES[SGD], rates, at=at, watched={})
    with pytest.raises(ValueError, match="diverged at every rate"):
        best_rate(curves([2.0, math.nan], [2.0, math.inf]))


def test_the_best_rate_is_low_all_along():
    assert best_rate(curves([2.0, 1.9, 1.0], [2.0, 1.5, 1.3], [2.0, 1.0, 2.0])) == 1
    assert best_rate(curves([0.0, 0.0, math.nan], [2.0, 2.0, 2.0])) == 1


def test_steps_to_a_loss():
    loss, at = torch.tensor([2.0, 1.5, 1.0, 1.2, 0.5]), [0, 10, 20, 30, 40]
    assert steps_to(loss, at, 2.0) == 0
    assert steps_to(loss, at, 1.75) == 5
    assert steps_to(loss, at, 1.0) == 20
    assert steps_to(loss, at, 0.85) == pytest.approx(35)
    assert steps_to(loss, at, 0.4) == math.inf


def test_doublings_are_where_both_curves_get_and_change_sign():
    at = [0, 10, 20, 30, 40]
    slow = torch.tensor([2.0, 1.75, 1.5, 1.25, 1.0])
    fast = torch.tensor([2.0, 1.5, 1.0, 0.9, 0.9])
    assert doublings(slow, fast, at, share=1.0) == pytest.approx(1)  # 1.0 after 40 and 20 steps
    assert doublings(fast, slow, at, share=1.0) == pytest.approx(-1)
    assert doublings(slow, slow, at) == 0
    assert doublings(slow, fast, at) == pytest.approx(1)
    # a curve that overshoots and comes back counts from when it was first there
    up_again = torch.tensor([2.0, 1.5, 1.0, 1.5, 2.0])
    assert doublings(slow, up_again, at) == pytest.approx(1)


def test_the_share_of_the_way_is_counted_from_the_mean_start():
    at = [0, 1, 2, 3, 4]
    line, late = torch.tensor([2.0, 1.0, 0.0, 0.0, 0.0]), torch.tensor([4.0, 4.0, 4.0, 2.0, 1.0])
    # from 3 to 1, half way is 2: at once, which counts as one step, and after three
    assert doublings(line, late, at, share=0.5) == pytest.approx(-math.log2(3))


def test_dear_steps_count_more_and_are_fewer():
    at = [0, 10, 20, 30, 40]
    line = torch.tensor([2.0, 1.75, 1.5, 1.25, 1.0])
    # at twice the price the second curve ends at 1.5, which the first has after 20 steps
    assert doublings(line, line, at, share=1.0, cost=2.0) == pytest.approx(-1)
    sudden = torch.tensor([2.0, 2.0, 2.0, 0.0, 0.0])
    assert doublings(line, sudden, at, share=1.0) > 0
    assert doublings(line, sudden, at, share=1.0, cost=1.5) <= 0


def test_times_as_fast_is_how_soon_the_end_of_the_other_is_reached():
    at = [0, 10, 20, 40]
    slow, fast = torch.tensor([2.0, 1.9, 1.8, 1.6]), torch.tensor([2.0, 1.6, 1.5, 1.4])
    assert times_as_fast(slow, fast, at) == pytest.approx(4)
    assert times_as_fast(fast, slow, at) == pytest.approx(1 / 4)
    assert times_as_fast(slow, slow, at) == pytest.approx(1)
