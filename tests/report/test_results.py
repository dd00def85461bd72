"""The recorded results belong to the studies as they are now."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from bayesattn.report.page import render
from bayesattn.studies import Tier, all_studies
from bayesattn.studies.ledger import NAME, Ledger

RESULTS = Path(__file__).parents[2] / "results"
RECORDS = Ledger.load(RESULTS / NAME).records


@pytest.mark.parametrize("study", all_studies(), ids=lambda study: study.claim.id)
def test_every_study_is_recorded_as_it_is_now(study):
    record = RECORDS[study.claim.id]
    assert record.failure is None
    assert record.tier is Tier.FULL
    assert record.commit and "dirty" not in record.commit
    assert (record.claim, record.method, record.null) == (study.claim, study.method, study.null)
    assert record.recipe == json.loads(json.dumps(asdict(study.recipes[record.tier])))


def test_the_recorded_results_make_a_page_with_all_their_figures():
    text = render(Ledger(RECORDS), RESULTS)
    assert text.count("<img") == sum(len(record.figures) for record in RECORDS.values()) > 0
    assert len(text) < 15e6
