"""One study: looks in order, premises, p, identities; and against a rule written out slowly."""

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bayesattn.verdicts import LEVELS, LOOKS, Count, Outcome, Value, judge, judge_identity
from bayesattn.verdicts.judgement import POWER
from bayesattn.verdicts.rule import outcomes
from bayesattn.verdicts.values import as_array

numbers = st.lists(st.floats(-3, 3).map(lambda x: round(x, 3)), min_size=12, max_size=12)


def seeds(effects, **fields):
    return [Value(effect, **fields) for effect in effects]


def slow_rule(effects, rule, limit, looks):
    """Outcome, look and p by scipy's t tests, one look after the other."""
    for count, level in zip(looks, LEVELS, strict=True):
        some = effects[:count]
        ends = limit if rule == "within" else [limit, limit]
        greater = [scipy.stats.ttest_1samp(some, end, alternative="greater").pvalue for end in ends]
        less = [scipy.stats.ttest_1samp(some, end, alternative="less").pvalue for end in ends]
        if rule == "within":
            yes, no = max(greater[0], less[1]), min(less[0], greater[1])
        else:
            yes, no = (greater[0], less[0]) if rule == "above" else (less[0], greater[0])
        for p, outcome in ((yes, Outcome.YES), (no, Outcome.NO)):
            if 2 * p < level:
                return outcome, count, 2 * p * 0.05 / level
    return Outcome.UNDECIDED, looks[-1], None


@settings(max_examples=60, deadline=None)
@given(
    effects=numbers,
    rule=st.sampled_from(["above", "below", "within"]),
    limit=st.floats(-1, 1).map(lambda x: round(x, 2)),
)
def test_the_rule_is_that_of_t_tests_look_by_look(effects, rule, limit):
    assume(np.ptp(effects[:4]) > 1e-6)
    limit = [limit, limit + 0.9] if rule == "within" else limit
    outcome, count, p = slow_rule(effects, rule, limit, LOOKS[0])
    found = judge(seeds(effects), transform="identity", rule=rule, limit=limit)
    assert (found.outcome, found.seeds, found.counted) == (outcome, count, count)
    assert found.p == (None if p is None else pytest.approx(p, rel=1e-6, abs=1e-12))
    logs = judge(
        seeds(np.exp(effects).tolist()), transform="log", rule=rule, limit=np.exp(limit).tolist()
    )
    assert (logs.outcome, logs.seeds) == (outcome, count)
    assert logs.value == pytest.approx(math.exp(found.value))


def random_studies(rng, form, shape):
    if form == "numbers":
        return rng.normal(0.6, 0.6, shape)
    trials = rng.integers(1, 30, (*shape, (form == "pairs" and 2) or 1))
    return np.stack([rng.binomial(trials, 0.7), trials], -1).astype(float)


def as_effect(entry):
    if np.ndim(entry) == 0:
        return float(entry)
    counts = [Count(int(successes), int(trials)) for successes, trials in entry]
    return counts[0] if len(counts) == 1 else (counts[0], counts[1])


@pytest.mark.parametrize(
    ("form", "transform"),
    [
        ("numbers", "identity"),
        ("numbers", "log"),
        ("counts", "proportion"),
        ("pairs", "proportion"),
    ],
)
@pytest.mark.parametrize("rule", ["above", "below", "within"])
def test_studies_together_and_one_by_one_agree(form, transform, rule):
    studies = random_studies(np.random.default_rng(7), form, (20, 12))
    if transform == "log":
        studies = np.exp(studies)
    limit = [0.2, 0.8] if rule == "within" else 0.5
    yes, no = outcomes(studies, transform, rule, limit, LOOKS[0])
    assert sum(yes + no) > 0
    for study, says_yes, says_no in zip(studies, yes, no, strict=True):
        values = seeds([as_effect(entry) for entry in study])
        assert as_array([value.effect for value in values]) == pytest.approx(study[None])
        found = judge(values, transform=transform, rule=rule, limit=limit)
        assert (found.outcome is Outcome.YES, found.outcome is Outcome.NO) == (says_yes, says_no)
        if found.p is not None:
            assert 0 < found.p <= 0.05
        assert found.interval.low <= found.interval.high
        assert found.level == 1 - LEVELS[LOOKS[0].index(found.seeds)]


def test_the_first_look_that_decides_is_final():
    clear = [1.0, 1.01, 0.99, 1.0]
    first = judge(seeds(clear), transform="identity", rule="above", limit=0.5)
    assert (first.outcome, first.seeds) == (Outcome.YES, 4)
    later = judge(seeds(clear + [-50.0] * 8), transform="identity", rule="above", limit=0.5)
    assert later == first
    lower = judge(seeds(clear), transform="identity", rule="below", limit=0.5)
    assert (lower.outcome, lower.p, lower.interval) == (Outcome.NO, first.p, first.interval)


def test_seeds_between_looks_wait():
    effects = [1.0, -1.0, 2.0, -2.0]
    at_four = judge(seeds(effects), transform="identity", rule="above", limit=0.0)
    assert at_four.outcome is Outcome.UNDECIDED
    assert at_four.interval is not None and at_four.p is None
    assert "holds the limit 0" in at_four.reason
    seven = judge(seeds(effects + [9.0] * 3), transform="identity", rule="above", limit=0.0)
    assert seven == at_four
    three = judge(seeds(effects[:3]), transform="identity", rule="above", limit=0.0)
    assert (three.value, three.interval, three.seeds) == (pytest.approx(2 / 3), None, 3)
    assert "3 of the 4 seeds" in three.reason
    assert judge([], transform="identity", rule="above", limit=0.0).value is None


def test_seeds_without_the_premise_do_not_count():
    clear = seeds([1.0, 1.02, 0.99, 1.0, 1.0, 1.01, 0.98])
    idle = Value(-100.0, comparator=5.0, learnt=False)
    found = judge([*clear[:3], idle, *clear[3:]], transform="identity", rule="above", limit=0.5)
    assert (found.outcome, found.seeds, found.counted) == (Outcome.YES, 4, 3)
    assert found.value == pytest.approx(np.mean([1.0, 1.02, 0.99]))
    assert found.comparator is None  # that of seeds which count
    blocked = judge([idle, idle, *clear[:2]], transform="identity", rule="above", limit=0.5)
    assert (blocked.outcome, blocked.value, blocked.p) == (Outcome.UNDECIDED, None, None)
    assert "2 of 4 seeds" in blocked.reason
    mended = judge([idle, idle, *clear[:6]], transform="identity", rule="above", limit=0.5)
    assert (mended.outcome, mended.seeds, mended.counted) == (Outcome.YES, 8, 6)
    nobody = judge([idle] * 12, transform="identity", rule="above", limit=0.5)
    assert (nobody.outcome, nobody.seeds, nobody.counted) == (Outcome.UNDECIDED, 12, 0)


def test_equal_seeds_decide_nothing_without_a_resolution():
    for transform in ("identity", "log"):
        found = judge(seeds([2.0] * 12), transform=transform, rule="above", limit=1.0)
        assert (found.outcome, found.interval, found.p) == (Outcome.UNDECIDED, None, None)
        assert "All seeds are equal" in found.reason
    stepped = judge(
        seeds([0.0] * 12), transform="identity", rule="within", limit=[-0.5, 0.5], resolution=1.0
    )
    assert (stepped.outcome, stepped.seeds) == (Outcome.YES, 12)
    counts = judge(seeds([Count(10, 10)] * 4), transform="proportion", rule="above", limit=0.5)
    assert counts.outcome is Outcome.YES and counts.p > 0 and counts.interval.high == 1
    pairs = [(Count(10, 10), Count(0, 10))] * 4
    apart = judge(seeds(pairs), transform="proportion", rule="above", limit=0.1)
    assert apart.outcome is Outcome.YES and apart.p > 0 and apart.interval.low < apart.value


@settings(max_examples=30, deadline=None)
@given(numbers, st.floats(0.1, 100), st.sampled_from(["above", "below"]))
def test_units_do_not_matter(effects, unit, rule):
    plain = judge(seeds(effects), transform="identity", rule=rule, limit=0.25)
    scaled = judge(
        seeds([unit * one for one in effects]), transform="identity", rule=rule, limit=0.25 * unit
    )
    assert (scaled.outcome, scaled.seeds) == (plain.outcome, plain.seeds)
    opposite = judge(
        seeds(effects),
        transform="identity",
        rule="below" if rule == "above" else "above",
        limit=0.25,
    )
    swap = {Outcome.YES: Outcome.NO, Outcome.NO: Outcome.YES}
    assert opposite.outcome is swap.get(plain.outcome, plain.outcome)


def test_comparators_are_averaged_like_values():
    values = [Value(x, comparator=c) for x, c in zip([2, 3, 5, 7], [1, 10, 100, 1000], strict=True)]
    assert judge(values, transform="identity", rule="above", limit=1).comparator == 1111 / 4
    logs = judge(values, transform="log", rule="above", limit=1)
    assert logs.comparator == pytest.approx(10**1.5)


@pytest.mark.parametrize(
    ("effects", "transform", "words"),
    [
        ([1.0, Count(1, 2), 1.0, 1.0], "identity", "of one form"),
        ([Count(1, 2)] * 4, "identity", "as a proportion"),
        ([0.5] * 4, "proportion", "needs Counts"),
        ([Count(3, 2)] * 4, "proportion", "successes must lie in"),
        ([Count(0, 0)] * 4, "proportion", "at least one trial"),
        ([1.0, 2.0, math.nan, 1.0], "identity", "finite"),
        ([1.0, 2.0, -1.0, 1.0], "log", "must be positive"),
    ],
)
def test_effects_that_cannot_be_judged_are_refused(effects, transform, words):
    with pytest.raises(ValueError, match=words):
        judge(seeds(effects), transform=transform, rule="above", limit=0.5)


def identity(errors, controls, limit=1e-6):
    pairs = zip(errors, controls, strict=True)
    return judge_identity(
        [Value(error, comparator=control) for error, control in pairs], limit=limit
    )


def test_an_identity_holds_only_for_every_seed_and_only_if_it_could_fail():
    found = identity([1e-8, 1e-7], [0.5, 0.7])
    assert (found.outcome, found.value, found.comparator) == (Outcome.YES, 1e-7, 0.5)
    assert (found.p, found.interval, found.seeds) == (None, None, 2)
    assert identity([1e-6, 0.0], [0.5, 0.7]).outcome is Outcome.YES
    assert identity([1e-8, 2e-6], [0.5, 0.7]).outcome is Outcome.NO
    assert identity([0.0, 0.0], [0.5, POWER * 1e-6]).outcome is Outcome.UNDECIDED
    assert identity([0, 0], [192, 192], limit=0).outcome is Outcome.YES
    assert identity([0, 0], [192, 0], limit=0).outcome is Outcome.UNDECIDED
    assert identity([math.nan, 0.0], [0.5, 0.5]).outcome is Outcome.NO
    assert identity([0.0, math.nan], [0.5, 0.5]).outcome is Outcome.NO
    assert identity([0.0], [math.nan]).outcome is Outcome.UNDECIDED
    assert judge_identity([], limit=1e-6).outcome is Outcome.UNDECIDED
    with pytest.raises(ValueError, match="a number and a comparator"):
        judge_identity([Value(0.0)], limit=1e-6)
