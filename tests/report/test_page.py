"""The page is complete, readable without colour, and loads nothing."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from bayesattn.claims import Tier, Value, registry
from bayesattn.claims.exhibits import heatmap_exhibit
from bayesattn.ledger.ledger import Ledger
from bayesattn.ledger.statement import Change
from bayesattn.report.html import linked
from bayesattn.report.markdown import picture
from bayesattn.report.page import render
from tests.ledger.toy import crash, paper, run_study, statement, toy

VOID = {"meta", "link", "img", "br", "input"}


class Page(HTMLParser):
    """Elements with their attributes and text; fails on tags that do not match."""

    def __init__(self, text):
        super().__init__()
        self.open, self.found = [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        element = {"tag": tag, "text": "", **dict(attrs)}
        self.found.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag):
        assert self.open.pop()["tag"] == tag

    def handle_data(self, data):
        for element in self.open:
            element["text"] += data

    def all(self, tag, **attributes):
        return [
            e
            for e in self.found
            if e["tag"] == tag and all(e.get(k) == v for k, v in attributes.items())
        ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("report")


def make_ledger(folder, tier):
    studies = {
        "good": toy("good"),
        "paper": paper(),
        "unclear": toy("unclear", level=-1.0),
        "broken": toy("broken", measure=crash),
    }
    return Ledger({name: run_study(s, tier, folder) for name, s in studies.items()})


@pytest.fixture(scope="module")
def ledger(folder):
    return make_ledger(folder, Tier.FULL)


@pytest.fixture(scope="module")
def text(ledger, folder):
    return render(ledger, folder)


@pytest.fixture(scope="module")
def page(text):
    return Page(text)


def test_nothing_is_loaded_from_anywhere(page, text):
    for element in page.found:
        for name in ("src", "srcset", "data", "poster", "action", "background"):
            assert element.get(name, "data:").startswith("data:")
        if element["tag"] != "a":
            assert element.get("href", "data:").startswith("data:")
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|<iframe|<object|<embed", text)
    (policy,) = page.all("meta", **{"http-equiv": "Content-Security-Policy"})
    assert policy["content"].startswith("default-src 'none'")


def test_figures_carry_no_links_that_load(ledger, folder):
    for record in ledger.records.values():
        for figure in record.figures:
            svg = (folder / figure.file).read_text()
            assert not re.search(r"""(?:href|src)=["'](?!#)|@import|url\((?!#)""", svg)


def test_links_lead_to_arxiv_or_into_the_page(page):
    ids = {e.get("id") for e in page.found}
    for link in page.all("a"):
        href = link["href"]
        assert href.startswith("https://arxiv.org/abs/") or href[1:] in ids


def rows_of(page):
    """Without the mark of Holm's correction, which depends on all that is registered."""
    return [" ".join(row["text"].replace("‡", "").split()) for row in page.all("tr")]


def test_what_a_paper_states_stands_beside_its_control_with_symbol_and_word(page):
    assert rows_of(page)[:2] == [
        "Statement As reported? After the control? Measured on",
        "paper The effect is large. ✓ replicates 11.5 points [5.76, 17.2]; comparator 0; 4 seeds"
        "authors: 8 to 10 It is the toy's own.✗ does not survive −8.5 points [−14.2, −2.76]; "
        "4 seeds one toy; two",
    ]


def test_ours_are_told_apart_and_say_what_it_would_take(page):
    first, broken, good, unclear = rows_of(page)[2:]
    assert first == "Statement Verdict Measured on"
    assert broken == "broken The effect is large. ! error one toy"
    assert good.startswith("good The effect is large. ✓ supported 11.5 points [5.76, 17.2]")
    assert "? undecided 4.5 points" in unclear and "seeds would decide one toy" in unclear
    counts = [item["text"] for item in page.all("li")]
    assert counts == [
        "As reported? replicates 1.",
        "After the control? does not survive 1.",
        "Ours: supported 1, undecided 1, error 1.",
    ]


def test_the_quick_tier_says_which_way_it_points_and_what_is_recorded(tmp_path, monkeypatch):
    quick, full = (make_ledger(tmp_path, tier) for tier in (Tier.QUICK, Tier.FULL))
    rows = {f"{n}/{own.name}": row for n, r in full.records.items() for own, row in r.judged()}
    monkeypatch.setattr("bayesattn.claims.recorded.recorded", lambda: rows)
    first, *others = rows_of(Page(render(quick, tmp_path)))[1:]
    assert "speaks for it 11 points; comparator 0; 3 seeds; recorded, in agreement: ✓ rep" in first
    assert "speaks against it −9 points; 3 seeds; recorded, in agreement: ✗ does not" in first
    assert "in agreement: ? undecided" in others[-1]
    monkeypatch.setattr("bayesattn.claims.recorded.recorded", dict)
    assert "nothing is recorded" in rows_of(Page(render(quick, tmp_path)))[1]


def test_a_row_of_another_registration_does_not_count(ledger, folder, monkeypatch):
    study = toy("good", statements=(statement(limit=6.0),))
    monkeypatch.setattr(registry, "_studies", {"good": study})
    found = rows_of(Page(render(Ledger({"good": ledger.records["good"]}), folder)))
    assert found[1] == "good The effect is large. not measured yet one toy"


def test_each_claim_opens_to_everything_about_it(page, ledger):
    for name in ("good", "paper", "unclear"):
        (claim,) = page.all("details", id=name)
        record = ledger.records[name]
        for part in (
            record.claim.title,
            record.rows["effect"].reason,
            "By playing.",
            "A toy that does not work.",
            "Compared with no toy.",
            "Rule: above 5 points.",
            "Version 1.",
            record.command,
            f"full tier, {len(record.seeds)} seeds",
            f"torch {record.environment['torch']}",
            "The <effects>.",
        ):
            assert part in claim["text"], part
        for commit in record.commits:
            assert commit in claim["text"]
    (claim,) = page.all("details", id="paper")
    assert "arXiv 2512.22471v3, figure 1; reported: 8 to 10" in claim["text"]


def test_changes_after_the_fact_are_shown(ledger, folder):
    change = Change(version=2, reason="Another limit.", after=True)
    record = ledger.records["good"]
    claim = replace(record.claim, version=2, changes=(change,))
    text = render(Ledger({"good": replace(record, claim=claim)}), folder)
    assert "Version 2: Another limit. <strong>Made after seeds were seen" in text


def test_a_crash_shows_its_traceback(page):
    (claim,) = page.all("details", id="broken")
    assert "The measurement crashed: RuntimeError: the toy broke" in claim["text"]
    assert "Traceback (most recent call last)" in claim["text"]
    assert "bayesattn claims run broken" in claim["text"]


def test_figures_are_inside_the_page_with_words_for_those_who_do_not_see_them(page):
    images = page.all("img")
    assert len(images) == 3
    for image in images:
        assert image["src"].startswith("data:image/svg+xml;base64,")
        assert image["alt"] == 'A line & "more".'


def drawn(name):
    """`draw` of a toy whose figure has this name."""

    def draw(self, tier, numbers):
        (picture,) = toy().draw(tier, numbers)
        return [picture._replace(name=name)]

    return draw


def heatmap(self, tier, numbers):
    labels, words = ("encoding", "length"), {"title": "By length", "caption": "C."}
    return [heatmap_exhibit([[0, 1]], ["a"], ["1x", "2x"], labels=labels, unit="u", **words)]


def both(self, tier, one):
    value = Value(one["effect"], 0.0)
    return {own.name: value for own in self.claim.statements}


def test_how_far_needles_are_found_comes_first_with_its_finding(folder, monkeypatch):
    """Whichever of these claims is recorded; what leads is not shown once more below."""
    far = statement(name="farther-512x", text="It looks farther.")
    own = {"values": both, "draw": drawn("league")}
    horizon = toy("ssmax-horizon", statements=(statement(), far), **own)
    million = toy("million-tokens", exhibits=heatmap, **own)
    studies = {"good": toy("good"), "ssmax-horizon": horizon, "million-tokens": million}
    monkeypatch.setattr(registry, "_studies", studies)
    looks = "Who still finds it? The model with far heads in its last layer looks farther."
    records = {}
    for name, said in (
        ("good", None),
        ("ssmax-horizon", f"{looks} ✓ supported"),
        ("million-tokens", "million-tokens works."),  # none of the statements that may lead
    ):
        records[name] = run_study(studies[name], Tier.FULL, folder)
        ledger = Ledger(records)
        page = Page(render(ledger, folder))
        kept = [e["data-name"] for e in page.all("figure") if e.get("data-name")]
        assert sorted(kept) == sorted(
            Path(figure.file).stem for r in records.values() for figure in r.figures
        )
        if said:
            assert kept[0] == f"{name}-league"
            assert page.all("figure")[0]["text"].strip().startswith(said)
            assert picture(ledger).startswith(f'![A line & "more".](results/figures/{name}-league')
            assert said in picture(ledger)
        else:
            assert "posterior.png" in picture(ledger)
    order = [e.get("id") for e in page.found]
    tables = order.index("million-tokens-heatmap")
    assert order.index("league") < tables < order.index("ledger")


def test_a_missing_figure_is_said(ledger, tmp_path):
    text = render(ledger, tmp_path)
    assert text.count("is missing: measure the claim again") == 3
    assert "<img" not in text


def test_texts_are_escaped(ledger, folder):
    record = ledger.records["good"]
    own = replace(record.claim.statements[0], text="<script>1</script>", scale="<b>")
    claim = replace(record.claim, id="evil", title="<b>", source="<b>", statements=(own,))
    record = replace(record, claim=claim)
    text = render(Ledger({"evil": record}), folder)
    assert "<script>1" not in text and "&lt;script&gt;1" in text
    assert "<b>" not in text


def test_arxiv_numbers_become_links():
    version = '<a href="https://arxiv.org/abs/2505.22842v2">arXiv 2505.22842v2</a>, table 1'
    assert linked("arXiv 2505.22842v2, table 1") == version
    assert linked("see arXiv 2505.22842: <x>") == (
        'see <a href="https://arxiv.org/abs/2505.22842">arXiv 2505.22842</a>: &lt;x&gt;'
    )


def test_the_structure_is_accessible(ledger, folder, monkeypatch):
    monkeypatch.setattr("bayesattn.report.page.playable", lambda: iter(()))
    text = render(ledger, folder)
    page = Page(text)
    (html,) = page.all("html")
    assert html["lang"] == "en"
    assert page.all("title")[0]["text"]
    assert [e["tag"] for e in page.found if re.fullmatch(r"h\d", e["tag"])] == (
        ["h1", "h2", "h3", "h2", "h3", "h3", "h2"] + ["h3"] * 4
    )
    assert len(page.all("main")) == len(page.all("header")) == 1
    assert "width=device-width" in page.all("meta", name="viewport")[0]["content"]
    assert "prefers-color-scheme: dark" in text
    ids = [e["id"] for e in page.found if "id" in e]
    assert len(ids) == len(set(ids))
    for header in page.all("th"):
        assert header["scope"] in ("col", "row")


def test_text_stands_out_from_its_background_in_both_schemes(text):
    def luminance(colour):
        channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    schemes = re.findall(r":root \{(.*?)\}", text, re.DOTALL)
    assert len(schemes) == 2
    for scheme in schemes:
        colours = dict(re.findall(r"--(\w+): (#\w{6})", scheme))
        assert len(colours) == 9
        for name in ("ink", "faint", "yes", "no", "undecided", "error"):
            for ground in ("paper", "panel"):
                low, high = sorted((luminance(colours[name]), luminance(colours[ground])))
                assert (high + 0.05) / (low + 0.05) >= 4.5, (name, ground)


def test_an_empty_ledger_is_a_page_too(folder):
    page = Page(render(Ledger(), folder))
    assert "No claim has been measured yet." in page.all("main")[0]["text"]
