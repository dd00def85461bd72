"""Summaries: the authors' marks as written, ours against nulls."""

import pytest

from bayesattn.probes import criteria
from bayesattn.probes.attention import REDUCTION, REDUCTION_EVENNESS, Depth
from bayesattn.probes.keys import RANDOM, WEIGHTS
from bayesattn.probes.measured import Measured
from bayesattn.probes.states import CONTROL, SHARE, SPEARMAN, TWO, States
from bayesattn.stats import Interval


def states(share=0.2, two=0.35, order=0.6, p=0.005, fresh=0.1, layer=3, kind="values"):
    measured = {
        SHARE: Measured(value=share, nulls={CONTROL: fresh}, p=p),
        TWO: Measured(value=two, nulls={CONTROL: fresh}, p=p),
        SPEARMAN: Measured(value=order, nulls={CONTROL: fresh}, p=p),
    }
    return States(
        layer=layer,
        kind=kind,
        width=4,
        prompts=9,
        measured=measured,
        plane=[],
        control_plane=None,
    )


def keys(*cosines, fresh=0.03):
    return [{WEIGHTS: Measured(value=x, nulls={RANDOM: 0.1, CONTROL: fresh})} for x in cosines]


def focusing(reduction, low=None, fresh=0.0):
    low = reduction - 0.05 if low is None else low
    one = Measured(
        value=reduction, interval=Interval(low, reduction + 0.05), nulls={CONTROL: fresh}
    )
    return Depth(layers=[], overall=dict.fromkeys((REDUCTION, REDUCTION_EVENNESS), one))


@pytest.mark.parametrize(
    ("two", "cosines", "reduction", "word"),
    [
        (0.31, (0.1, 0.3), 0.31, "present"),
        (0.29, (0.1, 0.3), 0.31, "partial"),
        (0.29, (0.1, 0.3, 0.3), 0.31, "absent"),
        (0.31, (0.1, 0.3), 0.30, "partial"),
    ],
)
def test_the_authors_marks(two, cosines, reduction, word):
    found = criteria.paper_criteria([states(two=two)], keys(*cosines), focusing(reduction))
    assert criteria.summary(found) == word


def test_fresh_weights_may_pass_as_well():
    found = criteria.paper_criteria([states(fresh=0.4)], keys(0.1, 0.1), focusing(0.5, fresh=0.1))
    assert [line.control_holds for line in found] == [True, True, False]


def test_what_was_not_measured_is_not_judged():
    assert criteria.summary(criteria.paper_criteria([], keys(0.1), None)) == "not all measured"
    assert criteria.paper_criteria([], [{}], None) == []


@pytest.mark.parametrize(
    ("changes", "holds"),
    [
        ({}, [True, True]),
        ({"p": 0.02}, [False, False]),
        ({"fresh": 0.3}, [False, True]),  # fresh weights have as much of an axis
        ({"fresh": 0.7}, [False, False]),
    ],
)
def test_beyond_chance_and_beyond_fresh_weights(changes, holds):
    found = criteria.calibrated([states(**changes)], [], None)
    assert [line.holds for line in found] == holds


def test_orthogonal_means_more_than_random_directions():
    orthogonal, not_so = (
        criteria.calibrated([], keys(*cosines), None)[0] for cosines in ((0.05, 0.15), (0.15, 0.15))
    )
    assert orthogonal.holds and not not_so.holds
    # far below the authors' 0.20, and yet less orthogonal than chance
    assert criteria.paper_criteria([], keys(0.15, 0.15), None)[0].holds


@pytest.mark.parametrize(
    ("low", "fresh", "holds"), [(0.1, 0.0, True), (-0.1, 0.0, False), (0.1, 0.2, False)]
)
def test_focusing_beyond_fresh_weights(low, fresh, holds):
    (found,) = criteria.calibrated([], [], focusing(0.3, low=low, fresh=fresh))
    assert found.holds is holds


def test_the_last_layer_of_values_counts():
    several = [states(layer=1), states(layer=5, share=0.9), states(layer=7, kind="residual")]
    assert criteria.last_values(several)[SHARE].value == 0.9
