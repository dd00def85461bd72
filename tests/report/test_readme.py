import pytest

from bayesattn.claims import Tier, UserError
from bayesattn.ledger.ledger import Ledger
from bayesattn.report.readme import BEGIN, END, fill, table
from tests.ledger.toy import Toy, crash, run_study, toy


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
