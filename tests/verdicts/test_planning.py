"""What a rule would say of reported numbers, and how many seeds would decide."""

import numpy as np
import pytest

from bayesattn.verdicts import LEVELS, Count, Outcome, Value, chance_of_yes, judge, seeds_needed
from bayesattn.verdicts.rule import decide, estimate

ABOVE = {"transform": "identity", "rule": "above", "limit": 0.0}


def test_power_is_as_stated():
    assert chance_of_yes(1.0, 1.0, **ABOVE) == pytest.approx(0.853, abs=0.025)
    assert chance_of_yes(1.5, 1.0, **ABOVE) == pytest.approx(0.995, abs=0.006)
    assert chance_of_yes(0.0, 1.0, **ABOVE) == pytest.approx(0.024, abs=0.011)
    assert chance_of_yes(-1.0, 1.0, **ABOVE) < 0.002
    assert chance_of_yes(1.0, 1.0, **ABOVE, looks=(8, 16, 32)) > 0.995


def seeds_used(truth, looks):
    effects = np.random.default_rng(0).normal(truth, 1, (4000, looks[-1]))
    used, left = np.full(4000, looks[-1]), np.ones(4000, dtype=bool)
    for count, level in zip(looks, LEVELS, strict=True):
        yes, no = decide(estimate(effects[:, :count], "identity"), "above", 0.0, level)
        used[left & (yes | no)] = count
        left &= ~(yes | no)
    return used.mean()


def test_a_clear_effect_takes_eight_and_a_half_seeds():
    assert seeds_used(1.5, (4, 8, 12)) == pytest.approx(8.5, abs=0.15)
    assert seeds_used(1.0, (4, 8, 12)) == pytest.approx(10.2, abs=0.15)


@pytest.mark.parametrize(
    ("reported", "sd", "design"),
    [
        (0.01, 0.5, {"transform": "log", "rule": "below", "limit": 0.02}),
        (1.0, 0.05, {"transform": "log", "rule": "within", "limit": [0.95, 1.05]}),
        (0.7, 0.2, {"transform": "proportion", "rule": "above", "limit": 0.5, "trials": 20}),
        (0.3, 0.3, {"transform": "proportion", "rule": "above", "limit": 0.0, "trials": (9, 20)}),
    ],
)
def test_simulated_studies_agree_with_studies_judged_one_by_one(reported, sd, design):
    """Drawn here in another way: seed by seed, by name."""
    rng, said = np.random.default_rng(9), []
    trials = design.get("trials")
    rule = {key: value for key, value in design.items() if key != "trials"}
    for _ in range(150):
        if trials is None:
            effects = [reported * float(np.exp(sd * rng.standard_normal())) for _ in range(12)]
        elif isinstance(trials, int):
            effects = [count(rng, reported, sd, trials) for _ in range(12)]
        else:
            shares = (0.5 + reported / 2, 0.5 - reported / 2)
            effects = [
                tuple(count(rng, s, sd / 2**0.5, n) for s, n in zip(shares, trials, strict=True))
                for _ in range(12)
            ]
        said.append(judge([Value(effect) for effect in effects], **rule).outcome is Outcome.YES)
    expected = chance_of_yes(reported, sd, **design)
    spread = (max(expected * (1 - expected), 0.01) * (1 / 150 + 1 / 2000)) ** 0.5
    assert abs(np.mean(said) - expected) < 3.5 * spread


def count(rng, share, sd, trials):
    size = share * (1 - share) / sd**2 - 1
    return Count(int(rng.binomial(trials, rng.beta(share * size, (1 - share) * size))), trials)


def test_simulations_repeat_and_differ_by_seed():
    assert chance_of_yes(0.8, 1.0, **ABOVE) == chance_of_yes(0.8, 1.0, **ABOVE)
    assert chance_of_yes(0.8, 1.0, **ABOVE) != chance_of_yes(0.8, 1.0, **ABOVE, seed=1)


def test_equal_seeds_need_a_resolution():
    assert chance_of_yes(1.0, 0.0, **ABOVE) == 0.0
    assert chance_of_yes(1.0, 0.0, **ABOVE, resolution=0.5) == 1.0
    sure = {"transform": "proportion", "rule": "above", "limit": 0.9, "trials": 50}
    assert chance_of_yes(1.0, 0.0, **sure) == 1.0


@pytest.mark.parametrize(
    ("reported", "sd", "trials", "words"),
    [
        (0.5, 0.1, None, "pass trials"),
        (0.5, 0.6, 10, "no proportion"),
        (1.5, 0, 10, "no proportion"),
    ],
)
def test_proportions_that_cannot_be_are_refused(reported, sd, trials, words):
    with pytest.raises(ValueError, match=words):
        chance_of_yes(reported, sd, transform="proportion", rule="above", limit=0.1, trials=trials)


def test_with_the_seeds_needed_four_of_five_studies_decide():
    rng = np.random.default_rng(3)
    few = rng.normal(0, 1, 12)
    few = 0.5 + (few - few.mean()) / few.std(ddof=1)  # distance 0.5, SD 1
    needed = seeds_needed([Value(float(x)) for x in few], **ABOVE)
    fresh = rng.normal(0.5, 1, (4000, needed))
    yes, _ = decide(estimate(fresh, "identity"), "above", 0.0, LEVELS[-1])
    assert yes.mean() == pytest.approx(0.8, abs=0.03)


def test_seeds_needed_of_counts():
    rng = np.random.default_rng(4)
    few = [Value(count(rng, 0.7, 0.2, 30)) for _ in range(12)]
    rule = {"transform": "proportion", "rule": "above"}
    found = estimate(np.array([[[one.effect] for one in few]], dtype=float), "proportion")
    share = float(found.value[0])
    near, far = (seeds_needed(few, **rule, limit=share - away) for away in (0.05, 0.1))
    assert 2 * far < near < 5 * far  # a square
    fresh = np.array([[[count(rng, share, 0.2, 30)] for _ in range(near)] for _ in range(300)])
    yes, _ = decide(estimate(fresh.astype(float), "proportion"), "above", share - 0.05, LEVELS[-1])
    assert 0.6 < yes.mean() < 0.97


def test_an_effect_at_the_limit_never_decides():
    values = [Value(x) for x in (1.0, -1.0, 2.0, -2.0)]
    assert seeds_needed(values, **ABOVE) is None
    assert seeds_needed(values[:1], **ABOVE) is None
    assert seeds_needed([Value(1.0)] * 4, **ABOVE) is None  # no spread
    margin = {"transform": "identity", "rule": "within"}
    inside, edge = (seeds_needed(values, **margin, limit=[-1, end]) for end in (3.0, 1e-3))
    assert inside is not None and edge is None
