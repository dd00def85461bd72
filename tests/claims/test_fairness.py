"""A fair rule supports what was reported: were it true, most studies would say that it replicates.

Every replication is fed the authors' numbers, with the noise that our seeds have.
"""

import pytest

from bayesattn.claims import Kind, all_studies
from tests.ledger.toy import PAPER, statement

LEAST = 0.8
REPORTED = [
    pytest.param(own, value, id=f"{study.claim.id}/{own.name}-{value:g}")
    for study in all_studies()
    for own in study.claim.statements
    if own.kind is Kind.REPLICATION
    for value in own.reported_values
]


@pytest.mark.parametrize(("own", "value"), REPORTED)
def test_what_was_reported_replicates_if_it_is_true(own, value):
    assert own.says_yes(value)
    assert own.chance_of_yes(value) >= LEAST


@pytest.mark.parametrize(
    ("changes", "value", "fair"),
    [
        ({"seed_sd": 1.0, "limit": 5.0}, 8.0, True),
        ({"seed_sd": 1.0, "limit": 7.9}, 8.0, False),  # a limit just beside what was reported
        ({"seed_sd": 9.0, "limit": 5.0}, 8.0, False),  # too much noise for so few seeds
        ({"seed_sd": 0.5, "limit": 2.0, "transform": "log", "rule": "below"}, 0.5, True),
        ({"seed_sd": 0.05, "limit": 0.5, "transform": "proportion", "trials": 50}, 0.8, True),
        ({"seed_sd": 0.3, "limit": 0.7, "transform": "proportion", "trials": 50}, 0.75, False),
        ({"seed_sd": 0.02, "rule": "within", "limit": (0.9, 1.1)}, 1.0, True),
        ({"seed_sd": 0.2, "rule": "within", "limit": (0.9, 1.1)}, 1.0, False),
    ],
)
def test_the_test_itself_tells_fair_rules_from_others(changes, value, fair):
    assert (statement(**{**PAPER, **changes}).chance_of_yes(value) >= LEAST) is fair
