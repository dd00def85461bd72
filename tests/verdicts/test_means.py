"""Student's interval, on the scale of the effect and on logs, and what equal seeds tell."""

import numpy as np
import pytest
import scipy.stats
from hypothesis import assume, given
from hypothesis import strategies as st

from bayesattn.verdicts.means import of_numbers


@given(st.lists(st.floats(-50, 50), min_size=3, max_size=12), st.sampled_from([0.9, 0.963, 0.997]))
def test_the_interval_is_that_of_scipy(effects, level):
    assume(np.ptp(effects) > 1e-6)
    oracle = scipy.stats.ttest_1samp(effects, 0).confidence_interval(level)
    low, high = of_numbers(np.array([effects]), logs=False).interval(level)
    assert (low[0], high[0]) == pytest.approx(tuple(oracle), rel=1e-6, abs=1e-9)
    ratios = np.exp(np.array([effects]) / 10)
    oracle = scipy.stats.ttest_1samp(np.log(ratios[0]), 0).confidence_interval(level)
    found = of_numbers(ratios, logs=True)
    low, high = found.interval(level)
    assert (low[0], high[0]) == pytest.approx(tuple(np.exp(oracle)), rel=1e-6)
    assert found.value[0] == pytest.approx(scipy.stats.gmean(ratios[0]))


def test_studies_do_not_mix():
    effects = np.random.default_rng(0).normal(size=(5, 4))
    together = of_numbers(effects, logs=False).interval(0.9)
    for row, study in enumerate(effects):
        alone = of_numbers(study[None], logs=False).interval(0.9)
        assert (together[0][row], together[1][row]) == pytest.approx((alone[0][0], alone[1][0]))


@pytest.mark.parametrize("logs", [False, True])
def test_equal_seeds_tell_no_spread(logs):
    for third in (0.3, 0.3 * (1 + 1e-12)):  # rounding is no spread
        low, high = of_numbers(np.array([[0.3, 0.3, third]]), logs=logs).interval(0.95)
        assert np.isnan(low[0]) and np.isnan(high[0])
    low, high = of_numbers(np.array([[0.3, 0.3, 0.3 * (1 + 1e-6)]]), logs=logs).interval(0.95)
    assert low[0] < 0.3 < high[0]


def test_a_step_is_the_least_spread():
    """Seeds on a grid whose truth lies between two points vary by half a step at most."""
    grid = np.array([[2.0, 3.0] * 50])
    assert grid.std() == 0.5
    equal = of_numbers(np.full((1, 4), 2.0), logs=False, resolution=1.0)
    assert equal.error[0] == pytest.approx(0.5 / 2)
    wide = np.array([[0.0, 8.0, 2.0, 4.0]])
    stepped, plain = (of_numbers(wide, logs=False, resolution=step) for step in (1.0, 0.0))
    assert stepped.error == plain.error


def test_wild_ratios_stay_finite():
    low, high = of_numbers(np.array([[1e-200, 1e200, 1.0]]), logs=True).interval(0.997)
    assert 0 <= low[0] < high[0] < np.inf


@pytest.mark.parametrize("effect", [0.0, -1.0])
def test_logs_need_positive_effects(effect):
    with pytest.raises(ValueError, match="must be positive"):
        of_numbers(np.array([[1.0, effect]]), logs=True)
