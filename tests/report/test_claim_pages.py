"""The claim pages on disk are those that `make results` writes."""

import re
from pathlib import Path

import pytest

from bayesattn.claims import all_studies
from bayesattn.ledger.ledger import NAME, Ledger
from bayesattn.report.claim_pages import page, pages, write

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "claims"
LEDGER = Ledger.load(ROOT / "results" / NAME)
STUDIES = {study.claim.id: study for study in all_studies()}
PAGES = pages(LEDGER, FOLDER / "notes")


def test_there_is_a_page_for_each_claim_and_an_index():
    on_disk = {path.name for path in FOLDER.glob("*.md")}
    assert on_disk == set(PAGES) == {"index.md", *(f"{name}.md" for name in STUDIES)}


@pytest.mark.parametrize("name", PAGES)
def test_the_page_on_disk_is_what_is_generated(name):
    on_disk = (FOLDER / name).read_text(encoding="utf-8")
    assert on_disk == PAGES[name], "run `make results`"


def test_writing_gives_the_same_pages(tmp_path):
    (tmp_path / "notes").symlink_to(FOLDER / "notes")
    write(LEDGER, tmp_path)
    assert {path.name: path.read_text("utf-8") for path in tmp_path.glob("*.md")} == PAGES


@pytest.mark.parametrize("note", sorted(FOLDER.glob("notes/*.md")), ids=lambda path: path.stem)
def test_a_note_belongs_to_a_claim_and_to_what_is_recorded(note):
    assert note.stem in {"index", *STUDIES}
    for commit in re.findall(r"^Measured at commit (\w+)", note.read_text("utf-8"), re.MULTILINE):
        recorded = LEDGER.records[note.stem].commit
        assert recorded and recorded.startswith(commit), "the note tells of an older recording"


@pytest.mark.parametrize("name", PAGES)
def test_links_and_figures_of_a_page_exist(name):
    targets = re.findall(r"\]\(([^)#]+)", PAGES[name])
    local = [target for target in targets if not target.startswith("https://")]
    assert [target for target in local if not (FOLDER / target).exists()] == []


def test_a_claim_without_a_record_says_so(tmp_path):
    text = page(STUDIES["bam-size"], None, tmp_path)
    assert "Nothing is recorded yet." in text
    assert text.endswith("    bayesattn claims run bam-size\n")


def test_a_record_is_shown_with_what_decided_it(tmp_path):
    record = LEDGER.records["bam-far-heads"]
    text = page(STUDIES["bam-far-heads"], record, tmp_path)
    assert record.verdict and record.verdict.reason in text
    assert "--tier full --seeds 3" in text
