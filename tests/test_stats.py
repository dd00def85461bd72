"""Intervals cover, and the verdict rule errs as often as it says."""

import math

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st

from bayesattn import stats
from bayesattn.stats import (
    Judgement,
    Outcome,
    judge_effect,
    judge_given,
    percentiles,
    resampling_weights,
)

SIMULATIONS = 2000


def within(rate, expected, trials):
    """Whether an observed rate is within four standard errors of the expected one."""
    return abs(rate - expected) < 4 * math.sqrt(expected * (1 - expected) / trials)


def contains(interval, value):
    return interval.low <= value <= interval.high


def test_t_interval_covers_as_stated_with_few_seeds():
    rng = np.random.default_rng(1)
    for n in (2, 3, 5):
        hits = [contains(stats.mean_interval(rng.normal(7, 2, n)), 7) for _ in range(SIMULATIONS)]
        assert within(np.mean(hits), stats.LEVEL, SIMULATIONS)


def test_bootstrap_interval_covers_nearly_as_stated_on_skewed_data():
    rng = np.random.default_rng(2)
    n, trials = 60, 300
    hits = [contains(stats.mean_interval(rng.exponential(1, n)), 1) for _ in range(trials)]
    assert 0.90 <= np.mean(hits) <= 0.98


def test_mean_interval_turns_to_the_bootstrap_for_large_samples():
    values = np.random.default_rng(4).exponential(1, stats.SMALL_SAMPLE)
    rng = np.random.default_rng(0)
    found = scipy.stats.bootstrap((values,), np.mean, method="BCa", rng=rng).confidence_interval
    assert stats.mean_interval(values) == (found.low, found.high) == stats.mean_interval(values)
    low, high = stats.mean_interval(values[:-1])
    assert low + high == pytest.approx(2 * values[:-1].mean())  # t is symmetric, BCa is not


@pytest.mark.parametrize("n", [2, stats.SMALL_SAMPLE])
def test_identical_values_give_a_point(n):
    assert stats.mean_interval([0.25] * n) == (0.25, 0.25)


def test_one_value_gives_no_interval():
    assert stats.mean_interval([3.0]) is None


@pytest.mark.parametrize("values", [[], [[1.0, 2.0]], [1.0, math.nan], [1.0, math.inf]])
def test_values_that_cannot_be_summarised_are_refused(values):
    with pytest.raises(ValueError, match="values must be"):
        stats.mean_interval(values)


@pytest.mark.parametrize("p", [0.05, 0.5, 0.9])
def test_wilson_interval_covers_on_average(p):
    trials = 40
    pmf = np.array(
        [math.comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(trials + 1)]
    )
    hits = [contains(stats.wilson_interval(k, trials), p) for k in range(trials + 1)]
    assert 0.92 <= float(pmf @ hits) <= 0.985


def test_wilson_interval_is_never_a_point_at_the_ends():
    assert stats.wilson_interval(0, 10).low == 0 < stats.wilson_interval(0, 10).high
    assert stats.wilson_interval(10, 10).low < 1 == stats.wilson_interval(10, 10).high


@pytest.mark.parametrize(("successes", "trials"), [(-1, 3), (4, 3), (0, 0)])
def test_wilson_interval_refuses_impossible_counts(successes, trials):
    with pytest.raises(ValueError, match="successes must lie in"):
        stats.wilson_interval(successes, trials)


@pytest.mark.parametrize(("null", "minimum"), [(0.0, 0.0), (1.5, 0.3)])
def test_false_verdicts_are_as_rare_as_stated(null, minimum):
    rng = np.random.default_rng(6)
    outcomes = [
        stats.judge_effect(rng.normal(null + minimum, 2, 5), null=null, minimum=minimum).outcome
        for _ in range(SIMULATIONS)
    ]
    tail = (1 - stats.LEVEL) / 2
    for outcome in (Outcome.SUPPORTED, Outcome.REFUTED):
        assert within(np.mean([o is outcome for o in outcomes]), tail, SIMULATIONS)


def test_an_effect_short_of_the_minimum_is_refuted_even_when_it_is_not_null():
    values = [0.10, 0.11, 0.12]
    assert stats.judge_effect(values).outcome is Outcome.SUPPORTED
    assert stats.judge_effect(values, minimum=0.5).outcome is Outcome.REFUTED
    assert stats.judge_effect(values, minimum=0.11).outcome is Outcome.INCONCLUSIVE
    assert stats.judge_effect(values, null=0.5).outcome is Outcome.REFUTED


def test_one_seed_is_inconclusive():
    judgement = stats.judge_effect([100.0])
    assert judgement.outcome is Outcome.INCONCLUSIVE
    assert judgement.interval is None
    assert "at least two" in judgement.reason


def test_a_negative_minimum_is_refused():
    with pytest.raises(ValueError, match="minimum must be 0 or more"):
        stats.judge_effect([1.0, 2.0], minimum=-1)


@given(
    values=st.lists(st.floats(-100, 100), min_size=2, max_size=8),
    shift=st.floats(-50, 50),
    minimum=st.floats(0, 10),
)
def test_more_effect_never_makes_a_claim_weaker(values, shift, minimum):
    order = [Outcome.REFUTED, Outcome.INCONCLUSIVE, Outcome.SUPPORTED]
    before = stats.judge_effect(values, minimum=minimum).outcome
    moved = np.asarray(values) + shift
    after = stats.judge_effect(moved, minimum=minimum).outcome
    # Rounding may move an interval that ends exactly on the threshold.
    low, high = stats.mean_interval(moved)
    if min(abs(low - minimum), abs(high - minimum)) > 1e-9:
        gap = order.index(after) - order.index(before)
        assert gap * np.sign(shift) >= 0


@pytest.mark.parametrize(
    ("limit", "outcome", "words"),
    [
        (0.2, Outcome.SUPPORTED, "lies below the limit 0.2"),
        (0.05, Outcome.REFUTED, "lies above the limit 0.05"),
        (0.11, Outcome.INCONCLUSIVE, "holds the limit 0.11"),
    ],
)
def test_an_error_is_judged_by_the_interval_of_its_mean(limit, outcome, words):
    values = [0.10, 0.11, 0.12]
    judgement = stats.judge_below(values, limit=limit)
    assert judgement.outcome is outcome
    assert words in judgement.reason
    assert judgement.value == pytest.approx(0.11)
    assert judgement.interval == pytest.approx(stats.mean_interval(values))
    assert stats.judge_below([0.0], limit=limit).outcome is Outcome.INCONCLUSIVE


def test_an_identity_holds_only_for_every_seed():
    controls = [0.5, 0.7]
    assert judged([1e-8, 1e-7], controls) is Outcome.SUPPORTED
    assert judged([1e-8, 2e-6], controls) is Outcome.REFUTED
    assert judged([1e-6, 0.0], controls) is Outcome.SUPPORTED


def test_an_identity_without_power_is_inconclusive():
    assert judged([1e-8], [0.5, 1e-4]) is Outcome.INCONCLUSIVE


def test_an_exact_count_may_have_tolerance_zero():
    assert judged([0, 0], [192], tolerance=0) is Outcome.SUPPORTED
    assert judged([0, 1], [192], tolerance=0) is Outcome.REFUTED
    assert judged([0, 0], [192, 0], tolerance=0) is Outcome.INCONCLUSIVE


@pytest.mark.parametrize("errors", [[math.nan, 0.0], [0.0, math.nan]])
def test_nan_never_supports_an_identity(errors):
    assert judged(errors, [0.5]) is Outcome.REFUTED
    assert judged([0.0], [math.nan]) is Outcome.INCONCLUSIVE


def judged(errors, controls, tolerance=1e-6):
    return stats.judge_identity(errors, controls, tolerance=tolerance).outcome


def test_the_weakest_part_decides():
    supported, refuted, unclear = (
        Judgement(outcome, value, None, "Reason.")
        for outcome, value in zip(
            (Outcome.SUPPORTED, Outcome.REFUTED, Outcome.INCONCLUSIVE), (1.0, 2.0, 3.0), strict=True
        )
    )
    worst = stats.judge_all({"a": supported, "b": unclear, "c": refuted})
    assert worst == refuted._replace(reason="c: Reason.")
    assert stats.judge_all({"a": supported, "b": unclear}).outcome is Outcome.INCONCLUSIVE
    assert stats.judge_all({"a": supported, "b": supported}) == supported


def test_without_its_premise_nothing_is_judged():
    refuted = judge_effect([0.0, 0.1, 0.05], minimum=0.5)
    held, failed = judge_effect([1.0, 1.1, 1.05]), judge_effect([-1.0, 1.0])
    assert judge_given("it can be seen", held, refuted) == refuted
    found = judge_given("it can be seen", failed, refuted)
    assert found.outcome is Outcome.INCONCLUSIVE
    assert (found.value, found.interval) == (refuted.value, refuted.interval)
    assert "it can be seen" in found.reason


def test_p_is_the_chance_of_so_clear_a_verdict():
    rng = np.random.default_rng(7)
    found = [stats.judge_effect(world).p for world in rng.normal(0, 1, (2000, 4))]
    ps = np.array([p for p in found if p is not None])
    assert (ps <= 0.025).all()  # there is a p where there is a verdict
    assert abs((ps <= 0.005).sum() / 2000 - 0.01) < 4 * (0.01 / 2000) ** 0.5  # either side
    expected = scipy.stats.ttest_1samp([1.0, 1.2, 1.1, 0.9], 0.5, alternative="greater").pvalue
    assert stats.judge_effect([1.0, 1.2, 1.1, 0.9], minimum=0.5).p == pytest.approx(expected)
    assert stats.judge_effect([3.0, 3.0]).p == 0.0
    assert stats.one_sided_p([3.0, 3.0], 3.0) == 1.0
    assert stats.judge_effect([3.0]).p is None


def test_p_of_several_parts():
    def part(outcome, p):
        return Judgement(outcome, 0.0, None, "Reason.", p)

    good = [part(Outcome.SUPPORTED, p) for p in (0.001, 0.02)]
    assert stats.judge_all({"a": good[0], "b": good[1]}).p == 0.02
    bad = part(Outcome.REFUTED, 0.01)
    assert stats.judge_all({"a": good[0], "b": bad, "c": good[1]}).p == pytest.approx(0.03)
    assert stats.judge_given("premise", part(Outcome.REFUTED, 0.01), good[0]).p is None


def test_holm_by_hand_and_against_its_promise():
    assert stats.holm([]) == []
    assert stats.holm([0.001, 0.02, 0.004]) == [True, True, True]
    assert stats.holm([0.001, 0.03, 0.02]) == [True, False, False]  # 2 · 0.02 · 2 > 0.05
    assert stats.holm([0.009, 0.5, 0.5]) == [False, False, False]
    rng = np.random.default_rng(3)
    wrong = sum(any(stats.holm(rng.uniform(0, 1, 26).tolist())) for _ in range(2000))
    # uniform one-sided chances, doubled: half of the stated level
    assert abs(wrong / 2000 - 0.025) < 4 * (0.025 / 2000) ** 0.5


def test_weights_are_counts_of_draws():
    counts = resampling_weights(50, resamples=400, seed=1)
    assert torch.equal(counts, counts.round()) and (counts >= 0).all()
    assert (counts.sum(1) == 50).all()
    assert counts.var().item() == pytest.approx(1 - 1 / 50, rel=0.05)  # multinomial
    assert torch.equal(counts, resampling_weights(50, resamples=400, seed=1))
    assert not torch.equal(counts, resampling_weights(50, resamples=400, seed=2))


def test_intervals_of_a_mean_cover_it_as_often_as_they_say(generator):
    """Tokens of a sequence are alike here: intervals over tokens would cover about half."""
    covered = 0
    weights = resampling_weights(100, resamples=500)
    for _ in range(400):
        level = torch.rand(100, 1, generator=generator, dtype=torch.float64)
        tokens = level.expand(100, 8)
        samples = weights @ tokens.mean(1) / 100
        value = float(tokens.mean())
        low, high = percentiles(samples, value)
        assert low <= value <= high
        covered += low <= 0.5 <= high
    assert 0.91 <= covered / 400 <= 0.98
