"""Seeds of two machines come together, if they may."""

import json

import pytest

from bayesattn.claims import Tier, UserError
from bayesattn.errors import MissingModelError
from bayesattn.files import parse
from bayesattn.ledger.judging import judge_seeds
from bayesattn.ledger.merging import add_seeds
from bayesattn.ledger.runner import run_claims
from tests.ledger.toy import run_study, statement, toy

STUDY = toy()


def find(name):
    if name != "toy":
        raise UserError(f"There is no claim {name!r}.")
    return STUDY


@pytest.fixture
def machines(tmp_path):
    """Two folders with the first and the last four of eight seeds."""
    for name, seeds in {"ours": range(4), "theirs": range(4, 8)}.items():
        list(run_claims([STUDY], Tier.FULL, tmp_path / name, seeds))
    return tmp_path / "ours", tmp_path / "theirs"


def change(folder, which=5, **changes):
    path = folder / "measured" / f"toy-full-{which}.json"
    path.write_text(json.dumps({**parse(path.read_text()), **changes}))


@pytest.mark.parametrize("inside", ["", "measured"])
def test_all_seeds_together_are_judged_as_if_one_machine_had_run_them(machines, tmp_path, inside):
    ours, theirs = machines
    added = add_seeds(theirs / inside, ours, find)
    assert [own.seed for own in added.new] == [4, 5, 6, 7] and added.known == []
    list(run_claims([STUDY], Tier.FULL, tmp_path / "alone", range(8)))
    together, alone = (judge_seeds(STUDY, Tier.FULL, own) for own in (ours, tmp_path / "alone"))
    assert together.rows == alone.rows and together.seeds == alone.seeds == tuple(range(8))
    assert add_seeds(theirs, ours, find).new == []


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"recipe": "0123"}, "cannot be added: it was measured by another recipe"),
        ({"registered": {"effect": "0123"}}, "before toy/effect was registered as it is"),
        ({"registered": {}}, "before toy/effect was registered as it is"),
        ({"versions": {"bayesattn": "0.0.1"}}, "measured with bayesattn 0.0.1, and this is"),
        ({"claim": "nobody"}, "There is no claim 'nobody'"),
        ({"seed": "five"}, r"toy-full-5\.json is no measured seed \(seed: 'five' is no int\)"),
    ],
)
def test_seeds_that_may_not_stand_beside_ours_are_refused_and_nothing_is_copied(
    machines, changes, sentence
):
    ours, theirs = machines
    before = sorted(ours.rglob("*"))
    change(theirs, **changes)
    with pytest.raises(UserError, match=sentence):
        add_seeds(theirs, ours, find)
    assert sorted(ours.rglob("*")) == before


def test_the_same_seed_twice_with_other_numbers_is_refused(machines):
    ours, theirs = machines
    copy = (ours / "measured" / "toy-full-3.json").read_text()
    (theirs / "measured" / "toy-full-3.json").write_text(copy)
    assert [own.seed for own in add_seeds(theirs, ours, find).known] == [3]
    change(theirs, which=3, numbers={"effect": 99.0, "many": []})
    with pytest.raises(UserError, match="Seed 3 of toy exists twice with different numbers"):
        add_seeds(theirs, ours, find)


def test_a_folder_without_seeds_is_refused(tmp_path):
    with pytest.raises(UserError, match="There are no measured seeds in .*claims run"):
        add_seeds(tmp_path, tmp_path / "ours", find)


def test_a_registration_that_changed_since_is_found(machines, monkeypatch):
    ours, theirs = machines
    monkeypatch.setitem(globals(), "STUDY", toy(statements=(statement(limit=7.0),)))
    with pytest.raises(UserError, match="before toy/effect was registered as it is"):
        add_seeds(theirs, ours, find)


def test_seeds_of_another_machine_are_judged_without_the_models_of_the_bank(tmp_path):
    def absent(self, tier, numbers):
        raise MissingModelError("The bank has no toy.")

    record = run_study(toy("players", exhibits=absent), Tier.FULL, tmp_path)
    assert record.failure is None and record.rows["effect"].outcome == "yes"
    assert record.exhibits == ()
