import pytest

from bayesattn.claims import Claim, UserError, all_studies, find_study, register, registry
from tests.ledger.toy import Toy, toy


@pytest.fixture
def empty(monkeypatch):
    all_studies()  # a study file registers once per process: not into the dict we take away again
    monkeypatch.setattr(registry, "_classes", {})


def test_every_study_file_is_found():
    assert {"bam-laplace", "bam-size", "bam-uniform"} <= {s.claim.id for s in all_studies()}


def test_studies_are_complete():
    for study in all_studies():
        claim = study.claim
        assert claim.id == claim.id.lower()
        assert claim.statement.endswith(".")
        assert "arXiv" in claim.source
        assert claim.reported and study.method and study.null
        assert study.recipes, f"{claim.id} has no tier"


def test_a_registered_study_is_found_by_its_id(empty):
    assert register(Toy) is Toy
    assert isinstance(find_study("toy"), Toy)


def test_registering_twice_is_harmless_but_two_studies_with_one_id_are_not(empty):
    register(Toy)
    register(Toy)
    with pytest.raises(ValueError, match="two studies claim the id 'toy'"):
        register(type(toy("toy")))


def test_an_unknown_study_is_answered_with_the_nearest():
    with pytest.raises(UserError, match=r"no claim 'bam-unifrom': did you mean 'bam-uniform'\?"):
        find_study("bam-unifrom")


def test_a_study_unlike_any_other_is_answered_with_the_list():
    with pytest.raises(UserError, match=r"choose one of bam-.*bam-laplace.*, tunnel-primitives\."):
        find_study("zzz")


def test_studies_come_in_order(empty):
    names = ["zebra", "apple", "mango"]
    for name in names:
        register(type(toy(name)))
    found = [study.claim.id for study in all_studies()]
    assert [name for name in found if name in names] == sorted(names)
    assert all(isinstance(study.claim, Claim) for study in all_studies())
