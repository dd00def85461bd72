"""The recorded results belong to the studies as they are now."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from bayesattn.claims import Tier, all_studies
from bayesattn.ledger.ledger import NAME, Ledger
from bayesattn.report.markdown import BEGIN, END, table
from bayesattn.report.page import render

RESULTS = Path(__file__).parents[2] / "results"
RECORDS = Ledger.load(RESULTS / NAME).records


STUDIES = {study.claim.id: study for study in all_studies()}


@pytest.mark.parametrize("name", RECORDS)
def test_what_is_recorded_is_what_the_study_is_now(name):
    study, record = STUDIES[name], RECORDS[name]
    assert record.failure is None
    assert record.tier is Tier.FULL
    assert record.commit and "dirty" not in record.commit
    assert (record.claim, record.method, record.null) == (study.claim, study.method, study.null)
    assert record.recipe == json.loads(json.dumps(asdict(study.recipes[record.tier])))


def test_the_readme_shows_the_recorded_results():
    readme = (RESULTS.parent / "README.md").read_text(encoding="utf-8")
    assert f"{BEGIN}\n{table(Ledger(RECORDS))}\n{END}" in readme


def test_the_recorded_results_make_a_page_with_all_their_figures():
    text = render(Ledger(RECORDS), RESULTS)
    assert text.count("<img") == sum(len(record.figures) for record in RECORDS.values()) > 0
    assert len(text) < 15e6
