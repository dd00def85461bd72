"""The recorded results are what the claims as they are now say of the recorded seeds."""

import json
import re
from dataclasses import asdict
from pathlib import Path

import pytest

from bayesattn.claims import Tier, all_studies
from bayesattn.claims.recorded import recorded
from bayesattn.ledger.judging import judge_row
from bayesattn.ledger.ledger import NAME, Ledger
from bayesattn.ledger.measured import FOLDER, misfit, read, seed_numbers, seeds_in
from bayesattn.report.markdown import BEGIN, END, costs, picture, summary
from bayesattn.report.page import render

RESULTS = Path(__file__).parents[2] / "results"
LEDGER = Ledger.load(RESULTS / NAME)
RECORDS = LEDGER.records
STUDIES = {study.claim.id: study for study in all_studies()}
SEEDS = sorted((RESULTS / FOLDER).glob("*.json"))


@pytest.mark.parametrize("name", RECORDS)
def test_what_is_recorded_is_what_the_study_says_of_the_recorded_seeds(name):
    study, record = STUDIES[name], RECORDS[name]
    assert record.failure is None
    assert record.tier is Tier.FULL
    assert record.recipe == json.loads(json.dumps(asdict(study.recipes[record.tier])))
    there = seeds_in(study, record.tier, RESULTS, record.seeds)
    assert tuple(there) == record.seeds
    found = study.read({seed: seed_numbers(own) for seed, own in there.items()})
    said = study.said(record.tier, found)
    assert record.rows.keys() == said.keys()
    for own in study.claim.statements:
        again, row = judge_row(own, said[own.name], record.tier), record.rows[own.name]
        assert (again.registered, again.outcome, again.verdict, again.seeds, again.left_out) == (
            row.registered,
            row.outcome,
            row.verdict,
            row.seeds,
            row.left_out,
        )
        assert again.value == pytest.approx(row.value)
        assert again.interval == pytest.approx(row.interval)
        assert again.comparator == pytest.approx(row.comparator)
        assert again.p == pytest.approx(row.p)
    drawn = {f"{name}-{picture.name}" for picture in study.draw(record.tier, found)}
    assert {Path(figure.file).stem for figure in record.figures} == drawn


@pytest.mark.parametrize("path", SEEDS, ids=lambda path: path.stem)
def test_a_recorded_seed_is_of_its_registration_and_of_a_commit(path):
    found = read(path)
    assert path.stem == found.name
    assert misfit(STUDIES[found.claim], found) is None
    assert found.commit and re.fullmatch(r"[0-9a-f]{12,40}", found.commit)


def test_there_is_nothing_in_the_results_that_no_record_names():
    figures = {figure.file for record in RECORDS.values() for figure in record.figures}
    exhibits = {exhibit.file for record in RECORDS.values() for exhibit in record.exhibits}
    on_disk = {f"{path.parent.name}/{path.name}" for path in RESULTS.glob("*/*")}
    assert {name for name in on_disk if not name.startswith(FOLDER)} == figures | exhibits
    assert {read(path).claim for path in SEEDS} == set(RECORDS)


def test_the_readme_shows_the_recorded_results():
    readme = (RESULTS.parent / "README.md").read_text(encoding="utf-8")
    claims = [study.claim for study in STUDIES.values()]
    assert f"{BEGIN}\n{summary(claims, LEDGER, 'docs/claims/')}\n{END}" in readme
    for name, shown in (("cost", costs(RESULTS / "cost.json")), ("picture", picture(LEDGER))):
        assert f"<!-- {name}:begin -->\n{shown}\n<!-- {name}:end -->" in readme
    assert len(readme.splitlines()) <= 150


def test_the_quick_tier_is_compared_with_what_is_recorded():
    rows = {f"{name}/{own.name}": row for name, r in RECORDS.items() for own, row in r.judged()}
    assert recorded() == rows, "run `make results`"


def test_the_recorded_results_make_a_page_with_all_their_figures():
    text = render(LEDGER, RESULTS)
    assert text.count("<img") == sum(len(record.figures) for record in RECORDS.values()) > 0
    assert len(text) < 10e6
