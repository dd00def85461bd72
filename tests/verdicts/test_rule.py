"""The rule errs as rarely as it says: normal, skewed and clustered seeds, 2,000 studies of each.

The truth sits at the limit, so every decision is wrong. Rates may exceed 5 % by three standard
errors of the simulation.
"""

import numpy as np
import pytest

from bayesattn.verdicts.rule import LEVELS, LOOKS, check_design, outcomes

STUDIES = 2000
AT_MOST = 0.05 + 3 * (0.05 * 0.95 / STUDIES) ** 0.5
both_looks = pytest.mark.parametrize("looks", LOOKS)


def wrong(effects, transform, limit, looks, rule="above"):
    return sum(outcomes(effects, transform, rule, limit, looks)).mean()


def clustered(rng, share, alike, trials, shape):
    """[studies, seeds, 2]: seeds of a Beta with intra-class correlation `alike`."""
    size = 1 / alike - 1 if alike else None
    chances = rng.beta(share * size, (1 - share) * size, shape) if size else np.full(shape, share)
    return np.stack([rng.binomial(trials, chances), np.full(shape, trials)], -1).astype(float)


def test_the_looks_share_five_percent():
    rng = np.random.default_rng(0)
    for looks in LOOKS:
        found = wrong(rng.standard_normal((40_000, looks[-1])), "identity", 0.0, looks)
        assert 0.044 < found < 0.051
    assert sum(LEVELS) > 0.05  # looks at the same seeds go together, or this would be too much


@both_looks
def test_even_spreads_err_as_stated(looks):
    rng = np.random.default_rng(1)
    shape = (STUDIES, looks[-1])
    pair = np.exp(rng.standard_normal(shape)) - np.exp(rng.standard_normal(shape))
    for effects in (rng.standard_normal(shape), rng.standard_t(3, shape), rng.laplace(size=shape)):
        assert wrong(effects + 7, "identity", 7.0, looks) <= AT_MOST
    assert wrong(pair, "identity", 0.0, looks) <= AT_MOST  # skewed arms, the same in both
    margins = [wrong(pair, "identity", margin, looks, "within") for margin in ([0, 9], [-9, 0])]
    assert max(margins) <= AT_MOST


@both_looks
def test_skewed_errors_err_as_stated_on_logs_and_not_without(looks):
    rng = np.random.default_rng(2)
    logs = rng.standard_normal((STUDIES, looks[-1]))
    assert wrong(np.exp(2 * logs), "log", 1.0, looks) <= AT_MOST
    assert wrong(np.exp(logs), "identity", float(np.exp(0.5)), looks) > 0.12
    mild = rng.gamma(4, 1, logs.shape)  # skewness 1
    assert wrong(mild, "identity", 4.0, looks) <= 0.09
    assert wrong(mild, "log", float(np.exp(1.2561176684318)), looks) <= AT_MOST + 0.01


@pytest.mark.parametrize("alike", [0.0, 0.1, 0.3])
@pytest.mark.parametrize(("share", "trials"), [(0.5, 20), (0.9, 10), (0.9, 100), (0.05, 20)])
def test_clustered_proportions_err_as_stated(share, trials, alike):
    looks = LOOKS[0]
    effects = clustered(np.random.default_rng(3), share, alike, trials, (STUDIES, looks[-1]))
    assert wrong(effects[:, :, None], "proportion", share, looks) <= AT_MOST


@pytest.mark.parametrize("alike", [0.0, 0.3])
@pytest.mark.parametrize(
    ("arms", "more"),
    [
        ((0.5, 0.5), 0.0),
        ((0.99, 0.89), 0.0),
        ((0.9, 0.1), 0.01),  # near 1 the formula of the difference is a bit too sure
    ],
)
def test_clustered_differences_err_as_stated(arms, more, alike):
    rng, looks = np.random.default_rng(4), LOOKS[0]
    shape = (STUDIES, looks[-1])
    effects = np.stack([clustered(rng, share, alike, 20, shape) for share in arms], -2)
    assert wrong(effects, "proportion", arms[0] - arms[1], looks) <= AT_MOST + more


def test_equivalence_is_found_and_refused_at_both_ends():
    rng = np.random.default_rng(5)
    noise = rng.normal(0, 1, (500, 12))
    for truth, most in ((0.0, "yes"), (3.0, "no"), (-3.0, "no")):
        yes, no = outcomes(noise + truth, "identity", "within", [-1.5, 1.5], LOOKS[0])
        assert (yes if most == "yes" else no).mean() > 0.9
        assert (no if most == "yes" else yes).mean() == 0.0


def test_premises_that_fail_now_and_then_do_not_make_it_err():
    """Three of four seeds count; the rule then works on fewer."""
    rng = np.random.default_rng(6)
    effects = rng.standard_normal((STUDIES, 12))
    assert wrong(np.delete(effects, [1, 5, 9], axis=1), "identity", 0.0, (3, 6, 9)) <= AT_MOST


@pytest.mark.parametrize(
    ("design", "words"),
    [
        (("logit", "above", 1.0, (4, 8, 12)), "transform must be"),
        (("log", "over", 1.0, (4, 8, 12)), "rule must be"),
        (("log", "above", 1.0, (4, 8)), "looks must be"),
        (("log", "above", [1.0, 2.0], (4, 8, 12)), "needs one number as limit"),
        (("log", "within", 1.0, (4, 8, 12)), "needs the two ends of a margin"),
        (("log", "within", [1.0], (4, 8, 12)), "needs the two ends of a margin"),
        (("identity", "within", [2.0, 1.0], (4, 8, 12)), "lower end first"),
        (("identity", "above", float("nan"), (4, 8, 12)), "must be finite"),
        (("log", "below", 0.0, (4, 8, 12)), "must be positive"),
        (("proportion", "above", 90, (4, 8, 12)), "0.9 and not 90"),
    ],
)
def test_designs_that_cannot_be_judged_by_are_refused(design, words):
    with pytest.raises(ValueError, match=words):
        check_design(*design)
