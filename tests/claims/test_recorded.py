"""What is recorded: which verdicts stand together, and what agrees with them."""

from dataclasses import replace

import pytest

from bayesattn.claims import Tier, registry
from bayesattn.claims import recorded as module
from bayesattn.claims.recorded import agrees, recorded, recorded_row, standing, write
from bayesattn.ledger.ledger import NAME, Ledger
from tests.ledger.toy import paper, run_study, statement, toy


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ledger")
    studies = [toy("good", level=200.0), paper()]
    return Ledger({study.claim.id: run_study(study, Tier.FULL, folder) for study in studies})


@pytest.mark.parametrize(
    ("others", "firm"),
    [(0, {"good/effect", "paper/effect", "paper/alone"}), (20, {"good/effect"})],
)
def test_the_family_is_all_that_is_registered(ledger, tmp_path, monkeypatch, others, firm):
    many = tuple(statement(name=f"s{number}") for number in range(others))
    studies = [toy("good", level=200.0), paper(), toy("later", statements=many)]
    monkeypatch.setattr(registry, "_studies", {own.claim.id: own for own in studies})
    monkeypatch.setattr(registry, "FOLDER", tmp_path)
    assert standing(ledger) == firm


def test_what_is_written_is_read_and_counts_for_the_same_registration_only(
    ledger, tmp_path, monkeypatch
):
    monkeypatch.setattr(module, "FILE", tmp_path / "recorded.json")
    ledger.save(tmp_path / NAME)
    write(tmp_path)
    recorded.cache_clear()
    try:
        row = ledger.records["good"].rows["effect"]
        assert list(recorded()) == ["good/effect", "paper/effect", "paper/alone"]
        assert recorded_row("good", statement()) == row
        assert recorded_row("good", statement(limit=6.0)) is None
        assert recorded_row("bad", statement()) is None
    finally:
        recorded.cache_clear()


def test_values_on_the_same_side_of_the_limit_agree(ledger):
    row = ledger.records["good"].rows["effect"]
    for value, same in ((5.1, True), (5.0, False), (-3.0, False), (None, False)):
        assert agrees(statement(), replace(row, value=value), row) is same
