"""The ledger that comes along is that of the claims as they are: read, judged and drawn again."""

import re
from dataclasses import is_dataclass
from pathlib import Path

import pytest

from bayesattn.claims.registry import find_study
from bayesattn.ledger.typed import to_plain
from tests.claims.recorded import LEDGER


@pytest.mark.parametrize("name", LEDGER.records)
def test_what_is_recorded_is_what_the_claim_would_say_of_these_numbers(name):
    study, record = find_study(name), LEDGER.records[name]
    found = study.read(record.numbers)
    assert all(map(typed, found.values())), "a misspelt name must fail in the type check"
    assert {seed: to_plain(one) for seed, one in found.items()} == record.numbers

    again, verdict = study.verdict(record.tier, found), record.verdict
    assert again.outcome == verdict.outcome
    assert again.measured == pytest.approx(verdict.measured)
    assert again.interval == pytest.approx(verdict.interval)
    assert again.null == pytest.approx(verdict.null)
    assert again.p == pytest.approx(verdict.p)
    assert numbers_in(again.reason) == numbers_in(verdict.reason)

    drawn = study.draw(record.tier, found)
    files = {f"{name}-{picture.name}" for picture in drawn}
    assert {Path(figure.file).stem for figure in record.figures} == files


def typed(result):
    """Whether a result is a dataclass, or a mapping to dataclasses."""
    if isinstance(result, dict):
        return bool(result) and all(map(typed, result.values()))
    return is_dataclass(result)


def numbers_in(text):
    return re.findall(r"\d[\d.,]*\d|\d", text)
