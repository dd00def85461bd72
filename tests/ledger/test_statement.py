"""What a registration may say, and what its hash depends on."""

from dataclasses import fields, replace

import pytest

from bayesattn.ledger.statement import DECIDING, Change, Claim, Statement
from bayesattn.ledger.typed import from_plain, to_plain
from bayesattn.verdicts import Kind, Value
from tests.ledger.toy import statement

OTHER = {
    "name": "other",
    "kind": Kind.CONTROL,
    "estimand": "another mean",
    "transform": "log",
    "rule": "below",
    "limit": 2.0,
    "premise": "accuracy above 0.9",
    "comparator": "another one",
    "looks": (8, 16, 32),
    "resolution": 0.5,
}


def test_what_decides_changes_the_hash_and_words_do_not():
    own = statement()
    assert set(OTHER) == set(DECIDING)
    for name, value in OTHER.items():
        assert replace(own, **{name: value}).hash != own.hash, name
    for field in fields(Statement):
        if field.name not in DECIDING and field.type is str and field.name != "of":
            assert replace(own, **{field.name: "mended"}).hash == own.hash, field.name


def test_a_statement_read_back_has_its_hash():
    for own in (statement(), statement(rule="within", limit=(0.5, 2.0))):
        assert from_plain(Statement, to_plain(own)) == own
        assert from_plain(Statement, to_plain(own)).hash == own.hash


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"name": "Big One"}, "a name has lower-case letters"),
        ({"rule": "within"}, r"limit = \[low, high\]"),
        ({"limit": (0.0, 1.0)}, r"limit = \[low, high\]"),
        ({"rule": "within", "limit": (2.0, 1.0)}, "the smaller number first"),
        ({"of": "other"}, "only a control is `of`"),
        ({"kind": Kind.IDENTITY}, 'an identity has rule = "below"'),
        ({"kind": Kind.IDENTITY, "rule": "below", "looks": (4, 8)}, "an identity has"),
        ({"looks": (3,)}, r"looks must be \[4, 8, 12\] or \[8, 16, 32\]"),
        ({"transform": "log", "limit": 0.0}, "on the log scale a limit is above 0"),
        ({"transform": "proportion", "limit": -2.0}, "a proportion, or a difference of two"),
        ({"kind": Kind.REPLICATION, "source": "arXiv 2512.22471"}, "with version and place"),
        ({"kind": Kind.REPLICATION, "source": "arXiv 2512.22471v3, figure 1"}, "reported_values"),
    ],
)
def test_what_cannot_be_judged_is_refused_with_one_sentence(changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        statement(**changes)


def test_a_replication_has_the_reported_numbers_or_says_that_there_are_none():
    source = {"kind": Kind.REPLICATION, "source": "arXiv 2512.22471v3, figure 1"}
    assert statement(**source, reported="5", reported_values=(5.0,)).reported_values == (5.0,)
    assert statement(**source, reported="no number: a figure without a scale").kind == "replication"


@pytest.mark.parametrize(
    ("rule", "limit", "yes", "no"),
    [("above", 1.0, 1.1, 1.0), ("below", 1.0, 1.0, 1.1), ("within", (1.0, 2.0), 1.5, 2.1)],
)
def test_which_side_of_the_limit_is_the_statements(rule, limit, yes, no):
    own = statement(rule=rule, limit=limit)
    assert own.says_yes(yes) and not own.says_yes(no)


def claim(**changes):
    return Claim(id="toy", title="Toys work.", source="arXiv", method="By playing.", **changes)


def test_every_version_after_the_first_has_its_reason():
    assert claim().version == 1
    assert claim(version=2, changes=(Change(version=2, reason="a better toy"),)).changes
    for changes in ((), (Change(version=3, reason="a better toy"),)):
        with pytest.raises(ValueError, match=r"version 2 needs one \[\[changes\]\]"):
            claim(version=2, changes=changes)


def test_statements_of_a_claim_have_names_of_their_own_and_controls_belong_to_replications():
    with pytest.raises(ValueError, match="two statements have the name 'effect': rename one"):
        claim(statements=(statement(), statement()))
    control = statement(kind=Kind.CONTROL, name="control", of="effect")
    with pytest.raises(ValueError, match="control: of = 'effect' is no replication"):
        claim(statements=(statement(), control))
    source = {"source": "arXiv 2512.22471v3, figure 1", "reported_values": (5.0,)}
    claim(statements=(statement(kind=Kind.REPLICATION, **source), control))


def test_an_interval_ends_where_the_estimand_ends():
    own = statement(limit=0.2, possible=(0, 1))
    few = [Value(effect) for effect in (0.02, 0.1, 0.3, 0.05)]
    whole, cut = statement(limit=0.2).judge(few), own.judge(few)
    assert whole.interval is not None and whole.interval.low < 0
    assert cut.interval == (0, whole.interval.high)
    assert (cut.outcome, cut.p, cut.value) == (whole.outcome, whole.p, whole.value)
    assert own.hash == statement(limit=0.2).hash  # it decides nothing
    with pytest.raises(ValueError, match="inside what is possible"):
        statement(limit=1.2, possible=(0, 1))
