"""Every claim says something about each of its statements, and about nothing else."""

import pytest

from bayesattn.claims import all_studies
from tests.claims.examples import example

REGISTERED = [study for study in all_studies() if study.claim.statements]


@pytest.mark.parametrize("study", REGISTERED, ids=lambda study: study.claim.id)
def test_a_seed_speaks_about_each_statement_and_is_drawn(study):
    tier, found = example(study.claim.id)
    said = study.said(tier, found)
    assert list(said) == [own.name for own in study.claim.statements]
    study.draw(tier, found)
