"""The README's table, and the claim pages on disk: they are what `make results` writes."""

import re
from pathlib import Path

import pytest

from bayesattn.claims import Tier, UserError, all_studies
from bayesattn.ledger.ledger import NAME, Ledger
from bayesattn.report.markdown import BEGIN, END, fill, page, pages, table, write
from tests.ledger.toy import Toy, crash, run_study, toy

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


@pytest.fixture
def ledger(tmp_path):
    good = run_study(toy("good"), Tier.QUICK, tmp_path)
    bad = run_study(toy("bad", measure=crash), Tier.QUICK, tmp_path)
    return Ledger({"good": good, "bad": bad})


def test_the_table_has_a_row_per_claim_in_order(ledger):
    assert table(ledger).splitlines() == [
        "| claim | reported | measured | null | verdict |",
        "| --- | --- | --- | --- | --- |",
        "| `bad` bad works. | always | – | – | ! error |",
        "| `good` good works. | always | 11 points [8.52, 13.5] | 0 | ✓ supported |",
    ]


def test_a_bar_in_the_text_does_not_split_a_cell(tmp_path):
    claim = Toy.claim.__class__(id="bar", statement="|x| = x.", source="arXiv", reported="a|b")
    record = run_study(toy("bar", claim=claim), Tier.QUICK, tmp_path)
    row = table(Ledger({"bar": record})).splitlines()[-1]
    assert r"\|x\| = x. | a\|b |" in row


def test_only_what_is_between_the_marks_changes_and_twice_is_as_once(tmp_path, ledger):
    readme = tmp_path / "README.md"
    readme.write_text(f"# Title\n\n{BEGIN}\nold\n{END}\n\nMore {END}\n")
    fill(readme, ledger)
    once = readme.read_text()
    assert once == f"# Title\n\n{BEGIN}\n{table(ledger)}\n{END}\n\nMore {END}\n"
    fill(readme, ledger)
    assert readme.read_text() == once


@pytest.mark.parametrize("text", ["", BEGIN, END, f"{END} {BEGIN}"])
def test_a_file_without_marks_is_left_alone(tmp_path, ledger, text):
    readme = tmp_path / "README.md"
    readme.write_text(text)
    with pytest.raises(UserError, match="needs a line <!-- ledger:begin -->"):
        fill(readme, ledger)
    assert readme.read_text() == text


def test_a_missing_file_is_named(tmp_path, ledger):
    with pytest.raises(UserError, match=r"Cannot read .*nothing\.md"):
        fill(tmp_path / "nothing.md", ledger)
