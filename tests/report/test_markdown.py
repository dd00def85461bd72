"""The README's table, and the claim pages on disk: they are what `make results` writes."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from bayesattn.claims import Kind, Tier, UserError, all_studies
from bayesattn.ledger.ledger import NAME, Ledger
from bayesattn.ledger.statement import Change
from bayesattn.report.markdown import (
    BEGIN,
    END,
    FIRST_EDITION,
    HEADLINES,
    LEADS,
    costs,
    fill,
    page,
    pages,
    picture,
    summary,
    table,
    write,
)
from bayesattn.report.table import make_cell
from bayesattn.verdicts import Outcome
from tests.ledger.toy import CLAIM, crash, paper, run_study, toy

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
def test_a_note_belongs_to_a_claim_and_says_if_it_is_of_the_first_edition(note):
    assert note.stem in {"index", *STUDIES}
    record = LEDGER.records.get(note.stem)
    for commit in re.findall(r"^Measured at commit (\w+)", note.read_text("utf-8"), re.MULTILINE):
        recorded = record is not None and any(own.startswith(commit) for own in record.commits)
        assert recorded or FIRST_EDITION in PAGES[f"{note.stem}.md"]


@pytest.mark.parametrize("name", PAGES)
def test_links_and_figures_of_a_page_exist(name):
    targets = re.findall(r"\]\(([^)#]+)", PAGES[name])
    local = [target for target in targets if not target.startswith("https://")]
    assert [target for target in local if not (FOLDER / target).exists()] == []


def test_a_claim_without_a_record_says_so(tmp_path):
    text = page(STUDIES["bam-size"].claim, Ledger(), tmp_path)
    assert "**not measured yet**" in text and "Nothing is recorded yet." in text
    assert text.endswith("    bayesattn claims run bam-size --tier full\n")
    assert "No statement is registered yet" in page(
        replace(CLAIM, statements=()), Ledger(), tmp_path
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("ledger")


@pytest.fixture(scope="module")
def ledger(folder):
    studies = [toy("good"), paper(), toy("bad", measure=crash)]
    return Ledger({study.claim.id: run_study(study, Tier.FULL, folder) for study in studies})


def claims(ledger):
    return [record.claim for record in ledger.records.values()]


def test_a_page_tells_each_statement_with_what_decided_it(ledger, tmp_path):
    record = ledger.records["paper"]
    change = Change(version=2, reason="Another limit.", after=True)
    claim = replace(record.claim, version=2, changes=(change,))
    text = page(claim, ledger, tmp_path)
    for part in (
        "## What the authors state",
        "[arXiv 2512.22471v3](https://arxiv.org/abs/2512.22471v3), figure 1; reported: 8 to 10",
        "## What is left after the control",
        record.rows["effect"].reason,
        record.rows["alone"].reason,
        "| the rule | above 5 points, looked at after 4, 8 and 12 seeds |",
        "| compared with | no toy |",
        "| found | 11.5 points [5.76, 17.2]; comparator 0; 4 seeds |",
        "| interval | 99.7% over seeds |",
        "## What would change our mind",
        "- Version 2: Another limit. **Made after seeds were seen, which count.**",
        "full tier, seeds 0 to 3",
        "    bayesattn claims run paper --tier full",
    ):
        assert part in text, part


def test_a_note_of_another_measurement_says_so(ledger, tmp_path):
    for commit in ("abcdef0", *(own[:7] for own in ledger.records["good"].commits)):
        (tmp_path / "good.md").write_text(f"## Notes\n\nMeasured at commit {commit}, so.\n")
        text = page(ledger.records["good"].claim, ledger, tmp_path)
        assert (FIRST_EDITION in text) == (commit == "abcdef0")


def test_the_table_has_both_columns_and_what_is_ours_apart(ledger):
    text = table(claims(ledger), ledger, "docs/").replace(" ‡", "")
    assert text.splitlines()[:10] == [
        "As reported? replicates 1. After the control? does not survive 1. "
        "Ours: supported 1, error 1.",
        "",
        "| what a paper states | as reported? | after the control? | measured on |",
        "| --- | --- | --- | --- |",
        "| [paper](docs/paper.md) The effect is large. | **✓ replicates** "
        "11.5 points [5.76, 17.2]; comparator 0; 4 seeds; authors: 8 to 10 | "
        "*It is the toy's own.* **✗ does not survive** −8.5 points [−14.2, −2.76]; 4 seeds | "
        "one toy; two |",
        "",
        "| what we state | verdict | measured on |",
        "| --- | --- | --- |",
        "| [good](docs/good.md) The effect is large. | **✓ supported** "
        "11.5 points [5.76, 17.2]; comparator 0; 4 seeds | one toy |",
        "| [bad](docs/bad.md) The effect is large. | **! error** "
        "`bayesattn claims run bad --tier full` | one toy |",
    ]


def test_what_is_not_measured_is_told_with_its_command(ledger):
    other = replace(CLAIM, id="later")
    text = table([*claims(ledger), other, replace(CLAIM, id="never", statements=())], ledger, "")
    assert "Registered, not measured yet: [later](later.md)." in text
    assert "Not registered yet, so not judged: [never](never.md)." in text
    assert "not measured" not in text.splitlines()[0]


def test_before_its_first_look_a_statement_has_no_verdict(ledger):
    record = ledger.records["good"]
    row = record.rows["effect"]
    for seeds, said in (
        (row.seeds[:3], "3 of the 4 seeds of the first look"),
        (row.seeds, "4 seeds"),
    ):
        early = replace(row, outcome=Outcome.UNDECIDED, seeds=seeds, interval=None)
        found = Ledger({"good": replace(record, rows={"effect": early})})
        cell = make_cell(record.claim, record.claim.statements[0], found, set())
        assert said in " ".join([cell.verdict, *cell.facts])
        assert cell.there == (len(seeds) == 4)
        assert ("not measured yet: [good]" in table([record.claim], found, "")) != cell.there


def test_the_readme_has_a_line_for_each_headline_that_was_measured(ledger, monkeypatch):
    names = ("later/effect", "paper/effect")
    monkeypatch.setattr("bayesattn.report.markdown.HEADLINES", names)
    text = summary([*claims(ledger), replace(CLAIM, id="later")], ledger, "docs/")
    assert text.replace(" ‡", "").splitlines() == [
        "| what a paper states | as reported? | after the control? | measured on |",
        "| --- | --- | --- | --- |",
        "| The effect is large. [paper](docs/paper.md) "
        "| **✓ replicates** 11.5 points [5.76, 17.2]; 4 seeds "
        "| **✗ does not survive** −8.5 points [−14.2, −2.76]; 4 seeds | one toy |",
        "",
        "As reported? replicates 1. After the control? does not survive 1. "
        "Ours: supported 1, error 1. Measured so far: 4 of 5 statements.",
    ]
    monkeypatch.setattr("bayesattn.report.markdown.HEADLINES", ())
    assert "docs/paper.md" not in summary(claims(ledger), ledger, "docs/")


def test_of_several_controls_the_readme_says_how_many_survive(ledger, monkeypatch):
    monkeypatch.setattr("bayesattn.report.markdown.HEADLINES", ("paper/effect",))
    claim = ledger.records["paper"].claim
    other = replace(claim.statements[1], name="later")
    text = summary([replace(claim, statements=(*claim.statements, other))], ledger, "")
    assert "| **✗ does not survive** 1 of 2, **not measured yet** 1 of 2 | one toy |" in text
    text = summary([replace(claim, statements=(claim.statements[0], other))], ledger, "")
    assert "| **not measured yet** | one toy |" in text


def test_headlines_are_few_and_one_of_each_claim():
    stated = {
        f"{name}/{own.name}": own for name, s in STUDIES.items() for own in s.claim.statements
    }
    assert {stated[name].kind for name in HEADLINES} == {Kind.REPLICATION}
    assert len({name.partition("/")[0] for name in HEADLINES}) == len(HEADLINES) <= 12


def test_a_premise_that_no_seed_met_is_said_in_words(ledger):
    record = ledger.records["good"]
    nothing = {"value": None, "interval": None, "comparator": None}
    row = replace(record.rows["effect"], **nothing, seeds=(), left_out=(0, 1, 2, 3))
    none = Ledger({"good": replace(record, rows={"effect": row})})
    assert "**✓ supported** none of 4 seeds met the premise |" in table([record.claim], none, "")


@pytest.mark.parametrize("left", range(len(LEADS)))
def test_the_best_picture_of_how_far_that_is_recorded_leads(ledger, left, monkeypatch):
    record = ledger.records["good"]
    records = {}
    for own in LEADS[left:]:
        claim = STUDIES[own.claim].claim
        (first,) = (s for s in claim.statements if s.name == own.statements[0])
        row = replace(record.rows["effect"], registered=first.hash)
        figure = replace(record.figures[0], file=f"figures/{own.claim}-{own.figure}.svg")
        records[own.claim] = replace(record, claim=claim, rows={first.name: row}, figures=(figure,))
    text = picture(Ledger(records))
    assert text.startswith(f'![A line & "more".](results/figures/{LEADS[left].claim}-league.svg)')
    assert "*Who still finds it? " in text and "? It " not in text
    assert "✓ supported" in text and text.endswith("4 seeds.*")


def test_costs_and_picture_are_there_only_if_recorded(tmp_path):
    assert costs(tmp_path / "cost.json") == "" and "posterior.png" in picture(Ledger())
    (tmp_path / "cost.json").write_text(
        '{"columns": ["a", "b"], "rows": [["x", 1.5]], "said": "S"}'
    )
    assert costs(tmp_path / "cost.json") == "| a | b |\n| --- | --- |\n| x | 1.5 |\n\nS"


def test_a_bar_in_the_text_does_not_split_a_cell(ledger):
    (own,) = ledger.records["good"].claim.statements
    claim = replace(ledger.records["good"].claim, statements=(replace(own, text="|x| = x."),))
    assert r"\|x\| = x. |" in table([claim], ledger, "")


def test_only_what_is_between_the_marks_changes_and_twice_is_as_once(tmp_path, ledger):
    readme = tmp_path / "README.md"
    readme.write_text(f"# Title\n\n{BEGIN}\nold\n{END}\n\nMore {END}\n")
    fill(readme, ledger, tmp_path)
    once = readme.read_text()
    shown = summary([study.claim for study in all_studies()], ledger, "docs/claims/")
    assert once == f"# Title\n\n{BEGIN}\n{shown}\n{END}\n\nMore {END}\n"
    fill(readme, ledger, tmp_path)
    assert readme.read_text() == once


@pytest.mark.parametrize("text", ["", BEGIN, END, f"{END} {BEGIN}"])
def test_a_file_without_marks_is_left_alone(tmp_path, ledger, text):
    readme = tmp_path / "README.md"
    readme.write_text(text)
    with pytest.raises(UserError, match="needs a line <!-- ledger:begin -->"):
        fill(readme, ledger, tmp_path)
    assert readme.read_text() == text


def test_a_missing_file_is_named(tmp_path, ledger):
    with pytest.raises(UserError, match=r"Cannot read .*nothing\.md"):
        fill(tmp_path / "nothing.md", ledger, tmp_path)
