"""Holm over the family, words by kind, and the next look."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bayesattn.verdicts import ERROR, LOOKS, Kind, Outcome, holm, judge, next_look, word
from bayesattn.verdicts.values import Value

chances = st.lists(st.one_of(st.none(), st.floats(0, 0.05)), max_size=12)


def slow_holm(found, m):
    """A finding stands if every smaller p clears its own bar, and so does its own."""
    known = sorted(p for p in found if p is not None)
    bars = [p <= ERROR / (m - rank) for rank, p in enumerate(known)]
    return [p is not None and all(bars[: known.index(p) + 1]) for p in found]


@given(chances, st.integers(0, 30))
def test_holm_is_its_definition(found, more):
    m = max(len(found) + more, 1)
    near = [p for p in found if p is not None and any(abs(p * k - ERROR) < 1e-9 for k in range(50))]
    if not near and len({p for p in found if p is not None}) == sum(p is not None for p in found):
        assert holm(found, m=m) == slow_holm(found, m)


def test_holm_counts_what_was_not_decided():
    assert holm([]) == []
    assert holm([0.02, None, None]) == [False, False, False]  # 0.02 · 3
    assert holm([0.01, None, 0.02]) == [True, False, True]
    assert holm([0.01, 0.02]) == [True, True]
    assert holm([0.01, 0.02], m=6) == [False, False]
    with pytest.raises(ValueError, match="m must be 2 or more"):
        holm([0.01, 0.02], m=1)


def test_a_family_without_effects_errs_in_five_percent():
    """p of the looks is rescaled: with many statements it must still be rare when it is small."""
    rng = np.random.default_rng(0)
    found = [
        judge([Value(x) for x in study], transform="identity", rule="above", limit=0.0).p
        for study in rng.standard_normal((3000, 12))
    ]
    families = np.array_split(np.array(found, dtype=object), 300)
    wrong = np.mean([any(holm(list(family))) for family in families])
    assert wrong <= ERROR + 3 * (ERROR * 0.95 / 300) ** 0.5
    small = np.mean([p is not None and p <= 0.01 for p in found])
    assert small <= 0.01 + 3 * (0.01 / 3000) ** 0.5


def test_every_kind_has_its_words():
    said = {kind: [word(kind, outcome) for outcome in Outcome] for kind in Kind}
    assert said[Kind.REPLICATION] == ["replicates", "does not replicate", "undecided"]
    assert said[Kind.CONTROL] == ["survives", "does not survive", "undecided"]
    assert said[Kind.OURS] == ["supported", "refuted", "undecided"]
    assert said[Kind.IDENTITY][:2] == ["holds", "fails"]


def test_the_next_look():
    assert [next_look(n, LOOKS[0]) for n in (0, 3, 4, 11, 12, 20)] == [4, 4, 8, 12, None, None]
    assert next_look(8, LOOKS[1]) == 16
