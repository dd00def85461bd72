"""Beta-binomial posteriors against sums over a plain grid, and differences of two of them."""

import itertools

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from bayesattn.verdicts.proportions import WIDEST, of_counts, of_pairs

counted = st.integers(1, 30).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


def array(counts):
    return np.array([counts], dtype=np.float64)


def slow_posterior(counts, means):
    """P(mean is at most means[i]): Jeffreys' prior, √ρ uniform, scipy's beta-binomial."""
    density = np.zeros(len(means))
    for rho in (WIDEST * (np.arange(60) + 0.5) / 60) ** 2:
        size = 1 / rho - 1
        likelihood = 1 / np.sqrt(means * (1 - means))
        for successes, trials in counts:
            likelihood = likelihood * scipy.stats.betabinom.pmf(
                successes, trials, means * size, (1 - means) * size
            )
        density += likelihood
    mass = density * np.gradient(means)
    return mass.cumsum() / mass.sum()


@pytest.mark.parametrize(
    "counts",
    [
        [(3, 10), (7, 10), (5, 10), (9, 10)],
        [(10, 10)] * 4,
        [(0, 5), (20, 20), (1, 3)],
        [(95, 100), (99, 100), (100, 100), (40, 100), (98, 100)],
    ],
)
def test_the_posterior_is_that_of_brute_force(counts):
    means = np.sin(np.linspace(1e-4, np.pi / 2 - 1e-4, 3000)) ** 2
    chance = slow_posterior(counts, means)
    low, high = of_counts(array(counts)).interval(0.97)
    if 0 < sum(successes for successes, _ in counts) < sum(trials for _, trials in counts):
        assert high[0] == pytest.approx(np.interp(0.985, chance, means), abs=2e-3)
    assert low[0] == pytest.approx(np.interp(0.015, chance, means), abs=2e-3)


@pytest.mark.parametrize("successes", [1, 3, 15, 30])
def test_seeds_of_one_trial_give_the_interval_of_jeffreys(successes):
    counts = [(1, 1)] * successes + [(0, 1)] * (30 - successes)
    low, high = of_counts(array(counts)).interval(0.95)
    oracle = scipy.stats.beta(successes + 0.5, 30 - successes + 0.5)
    assert low[0] == pytest.approx(oracle.ppf(0.025), abs=2e-4)
    assert high[0] == pytest.approx(oracle.ppf(0.975) if successes < 30 else 1.0, abs=2e-4)


def test_thirty_of_thirty():
    alone = [float(end[0]) for end in of_counts(array([(1, 1)] * 30)).interval(0.95)]
    assert alone == pytest.approx([0.92, 1.0], abs=0.001)
    seeds = [float(end[0]) for end in of_counts(array([(10, 10)] * 3)).interval(0.95)]
    assert 0.75 < seeds[0] < alone[0] and seeds[1] == 1.0


@settings(max_examples=40)
@given(st.lists(counted, min_size=2, max_size=12), st.sampled_from([0.95, 0.997]))
def test_intervals_are_possible_and_mirrored(counts, level):
    found = of_counts(array(counts))
    low, high = (float(end[0]) for end in found.interval(level))
    assert 0 <= low < high <= 1
    mirror = of_counts(array([(trials - successes, trials) for successes, trials in counts]))
    least, most = (float(end[0]) for end in mirror.interval(level))
    assert (least, most) == pytest.approx((1 - high, 1 - low), abs=1e-3)
    assert 0 < found.error[0] < 0.5


def test_none_right_begins_at_zero_and_all_right_ends_at_one():
    for level in (0.5, 0.997):
        none, every = (of_counts(array([(right, 7)] * 5)).interval(level) for right in (0, 7))
        assert none[0][0] == 0.0 < none[1][0]
        assert every[0][0] < 1.0 == every[1][0]


def test_many_trials_leave_only_the_spread_between_seeds():
    chances = np.random.default_rng(0).beta(6, 6, 32)
    counts = [(round(20_000 * chance), 20_000) for chance in chances]
    low, high = of_counts(array(counts)).interval(0.95)
    t = scipy.stats.ttest_1samp(chances, 0).confidence_interval(0.95)
    assert (low[0], high[0]) == pytest.approx(tuple(t), abs=0.012)


@settings(max_examples=40)
@given(st.lists(st.tuples(counted, counted), min_size=2, max_size=12))
def test_differences_are_possible_and_turn_around(pairs):
    low, high = (float(end[0]) for end in of_pairs(array(pairs)).interval(0.985))
    assert -1 <= low < high <= 1
    turned = of_pairs(array([(second, first) for first, second in pairs]))
    least, most = (float(end[0]) for end in turned.interval(0.985))
    assert (least, most) == pytest.approx((-high, -low))


def draws(counts, rng):
    chance = of_counts(array(counts))
    angle = np.interp(rng.random(40_000), chance.chance[0], chance.edges)
    return np.sin(angle) ** 2


@pytest.mark.parametrize(
    "arms",
    [
        ([(9, 10)] * 6, [(4, 10)] * 6),
        ([(20, 20)] * 8, [(20, 20)] * 8),
        ([(20, 20), (19, 20), (20, 20), (12, 20)], [(1, 20), (3, 20), (0, 20), (2, 20)]),
    ],
)
def test_without_correlation_the_difference_is_that_of_two_posteriors(arms):
    """Zou and Donner's formula is an approximation: a few hundredths are as near as it comes."""
    rng = np.random.default_rng(1)
    found = of_pairs(array(list(zip(*arms, strict=True))))
    assert found.together[0] == 0
    drawn = draws(arms[0], rng) - draws(arms[1], rng)
    low, high = (float(end[0]) for end in found.interval(0.985))
    assert (low, high) == pytest.approx(tuple(np.quantile(drawn, [0.0075, 0.9925])), abs=0.05)


def together(pairs):
    """The least correlation by hand, and the most that trials leave."""
    shares = np.array([[x / n for x, n in pair] for pair in pairs])
    lowered = np.tanh(np.arctanh(np.corrcoef(shares.T)[0, 1]) - 1.645 / (len(pairs) - 3) ** 0.5)
    left = 1.0
    for arm in range(2):
        smoothed = [(pair[arm][0] + 0.5) / (pair[arm][1] + 1) for pair in pairs]
        noise = np.mean(
            [p * (1 - p) / pair[arm][1] for p, pair in zip(smoothed, pairs, strict=True)]
        )
        left *= 1 - noise / shares[:, arm].var(ddof=1)
    return lowered, np.sqrt(left)


def test_arms_that_go_together_make_the_difference_surer():
    rng = np.random.default_rng(0)
    first = rng.integers(40, 160, 12)
    second = first - 20 + rng.integers(-15, 15, 12)
    pairs = [((int(one), 200), (int(other), 200)) for one, other in zip(first, second, strict=True)]
    turned = [(one, pairs[at - 1][1]) for at, (one, _) in enumerate(pairs)]
    low, high = of_pairs(array(pairs)).interval(0.963)
    least, most = of_pairs(array(turned)).interval(0.963)
    assert high - low < 0.6 * (most - least)
    lowered, left = together(pairs)
    assert lowered < left
    assert of_pairs(array(pairs)).together[0] == pytest.approx(lowered)
    assert of_pairs(array(pairs[:3])).together[0] == 0  # three seeds tell no correlation


def test_a_constant_difference_still_has_the_chance_of_its_trials():
    pairs = [((at, 50), (at - 10, 50)) for at in (12, 20, 31, 40, 28, 17)]
    found = of_pairs(array(pairs))
    with np.errstate(divide="ignore"):
        _, left = together(pairs)
    assert found.together[0] == pytest.approx(left)
    low, high = found.interval(0.95)
    noise = np.sqrt(2 * 0.25 / 300)
    assert high[0] - low[0] > 2 * 1.5 * noise


def test_the_formula_of_the_difference_written_out():
    pairs = [((8, 10), (3, 10)), ((9, 10), (5, 10)), ((6, 10), (2, 10)), ((7, 10), (1, 10))]
    found = of_pairs(array(pairs))
    (l1, u1), (l2, u2) = (
        [float(end[0]) for end in of_counts(array(list(arm))).interval(0.985)]
        for arm in zip(*pairs, strict=True)
    )
    r = float(found.together[0])
    p, q = 30 / 40, 11 / 40
    low = p - q - np.sqrt((p - l1) ** 2 + (u2 - q) ** 2 - 2 * r * (p - l1) * (u2 - q))
    high = p - q + np.sqrt((u1 - p) ** 2 + (q - l2) ** 2 - 2 * r * (u1 - p) * (q - l2))
    assert [float(end[0]) for end in found.interval(0.985)] == pytest.approx([low, high])


def test_studies_do_not_mix():
    rng = np.random.default_rng(3)
    studies = np.stack([rng.binomial(20, 0.7, (6, 5)), np.full((6, 5), 20)], -1).astype(float)
    together = of_counts(studies).interval(0.985)
    for row, end in itertools.product(range(6), range(2)):
        alone = of_counts(studies[row : row + 1]).interval(0.985)[end][0]
        assert together[end][row] == pytest.approx(alone, abs=5e-4)
