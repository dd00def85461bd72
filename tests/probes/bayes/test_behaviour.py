"""Verdicts: exact Bayes, half of it, nothing, and a network before and after training."""

import itertools
import math

import pytest
import torch

from bayesattn.models.architectures import build
from bayesattn.models.open import open_tunnel
from bayesattn.probes.bayes import laws
from bayesattn.probes.bayes.behaviour import (
    Task,
    judge_seeds,
    measure_seed,
    own_prior,
    reference,
)
from bayesattn.probes.bayes.readers import TunnelReader
from bayesattn.tunnels import Bijection, Dice, Labels, Markov
from tests.probes.bayes.observers import Exact, LastSeen, task

SEEDS = range(8)


def judged(tunnel, reader, sequences=8):
    own = task(tunnel, reader)
    return judge_seeds([measure_seed(own, s, sequences, thorough=False) for s in SEEDS])


@pytest.mark.parametrize(
    ("reader", "words"),
    [
        (Exact(Dice()), "tracks exact Bayes within"),
        (Exact(Dice(), 0.5), "better than the trivial predictor, but not Bayesian"),
        (Exact(Dice(), 0.0), "no inference"),
        (LastSeen(Dice()), "no inference"),
    ],
)
def test_words_of_observers_that_are_known(reader, words):
    assert judged(Dice(), reader).words.startswith(words)


def test_missed_is_0_for_bayes_and_1_for_the_trivial_predictor():
    tunnel = Bijection(6)
    exact = measure_seed(task(tunnel, Exact(tunnel)), 0, 200, thorough=False)
    assert exact.missed < 1e-9
    nothing = exact.trivial / float((math.log2(6) - reference(tunnel).least).mean())
    assert nothing == pytest.approx(1, abs=0.02)  # uniform is its mean over all permutations


def test_the_trivial_predictor_sees_the_last_draw():
    """The same comes again in 2 of 3: a mean over all sequences and steps, by their chances."""
    tunnel = Dice(6)
    known = reference(tunnel)
    assert known.by_token is not None
    same = []
    for shown in itertools.product(range(2), repeat=6):
        exact = tunnel.exact(torch.tensor([shown]))[0]
        for step in range(6):
            zeros = shown[: step + 1].count(0)
            prior = math.factorial(zeros) * math.factorial(step + 1 - zeros)
            weight = prior / math.factorial(step + 2) / 2 ** (5 - step)
            same.append((weight, float(exact[step, shown[step]])))
    mean = sum(w * p for w, p in same) / sum(w for w, _ in same)
    assert float(known.by_token[0, 0]) == pytest.approx(mean, abs=0.01)
    assert mean == pytest.approx(2 / 3, abs=1e-9)


@pytest.mark.parametrize("name", ["zoo:bijection-10-returning", "zoo:mess3"])
def test_a_zoo_model_is_bayesian_and_a_fresh_one_is_not(name):
    model, tunnel = open_tunnel(name)
    assert judged(tunnel, TunnelReader(model)).words.startswith("tracks exact Bayes within 0.00")
    # other weights for each seed: where the last token tells much, one network may be lucky
    fresh = Task(
        name, "", tunnel, lambda seed: TunnelReader(build(model.architecture, tunnel, seed).eval())
    )
    missed = [measure_seed(fresh, s, 8, thorough=False) for s in SEEDS]
    assert judge_seeds(missed).words == "no inference"


def test_fewer_seeds_than_the_first_look_decide_nothing():
    own = task(Dice(), Exact(Dice()))
    assert judge_seeds([measure_seed(own, 0, 4, thorough=False)]).words == "undecided"


@pytest.mark.parametrize(
    ("stated", "own", "field"),
    [
        (Dice(20, 3), Dice(20, 3, 4.0), "concentration"),
        (Markov(20), Markov(20, 3, 3.0), "concentration"),
        (Labels(16), Labels(16, 0.7), "alpha"),
    ],
)
def test_its_own_prior_is_found(stated, own, field):
    batch = stated.sample(40, torch.Generator().manual_seed(0))
    log_probs = Exact(own).read(batch.inputs, batch.scored).log_probs
    found = own_prior(stated, batch.inputs, log_probs, 1.0)
    assert found.field == field
    assert found.value == pytest.approx(getattr(own, field), rel=0.15)
    assert found.missed < 0.01


@pytest.mark.parametrize(
    ("name", "at"),
    [
        ("Bayesian", (-3.0, 3.0, -1.0, -1.0)),
        ("power", (0.3, -0.5, -0.7)),
        ("exponential", (0.3, -0.5, -1.5)),
    ],
)
def test_a_law_is_told_from_the_others(name, at):
    import numpy as np

    curve = laws.LAWS[name](np.arange(1.0, 25.0), np.asarray(at))
    errors = laws.held_out_errors(curve.tolist())
    assert min(errors, key=errors.get) == name and errors[name] < 1e-3


def test_the_bayesian_law_is_the_predictive_of_two_hypotheses():
    """Evidence that comes as the first hypothesis says: Σ ρ P^(n+1) / Σ ρ P^n."""
    import numpy as np

    prior, chance = np.array([0.2, 0.8]), np.array([0.9, 0.4])
    at = np.array([np.log(0.2 / 0.8), np.log(9.0), np.log(0.4 / 0.6), 0.0])
    for n in (0.0, 1.0, 5.0):
        truth = -np.log2((prior * chance ** (n + 1)).sum() / (prior * chance**n).sum())
        assert laws.bayesian(np.array([n]), at)[0] == pytest.approx(truth)


def test_a_flat_or_short_curve_follows_no_law():
    assert laws.held_out_errors([1.0] * 20) is None
    assert laws.held_out_errors([1.0, 0.5, 0.2]) is None
