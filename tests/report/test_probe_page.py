"""The page of a probe in a real browser: three pictures and sentences, strips, card, export."""

import base64

import pytest

from bayesattn.commands.main import main
from tests.probes.llm.small import save_small
from tests.report.chromium import MARKS, complaints, open_details, script, serious_problems

pytestmark = MARKS
FAST = ("--length", "8", "--candidates", "30", "--each", "3", "--draws", "20")
CATCH = """window.saved = [];
HTMLAnchorElement.prototype.click = function () { saved.push([this.download, this.href]) }"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    one, two = (save_small(folder / name, seed) for seed, name in enumerate(("one", "two")))
    page = folder / "probe.html"
    assert main(["probe", str(one), str(two), *FAST, "--out", str(page)]) == 0
    return page


@pytest.fixture
def opened(browser, page):
    browser.set_window_size(1280, 900)
    browser.get("about:blank")
    browser.get(page.as_uri())
    return browser


def texts(browser, selector):
    return [one.text for one in browser.find_elements("css selector", selector)]


def test_no_complaints_and_no_requests(opened):
    open_details(opened)
    assert complaints(opened) == []


def test_three_pictures_lead_each_with_a_sentence_for_each_model(opened):
    leads = opened.find_elements("css selector", "section.lead")
    assert len(leads) == 3
    for lead in leads:
        sentences = [p.text for p in lead.find_elements("css selector", "p")]
        assert len(sentences) == 2 and all(one.endswith(".") for one in sentences)
        image = lead.find_element("css selector", "img")
        assert image.get_attribute("alt") and int(image.get_attribute("naturalWidth")) > 100


def test_every_number_stands_on_an_axis_with_its_nulls(opened):
    open_details(opened)
    rows = script(
        opened,
        "return [...document.querySelectorAll('tbody tr')].filter(r => r.querySelector('.strip'))"
        ".map(r => [r.querySelector('[data-label=measured]').textContent,"
        " r.querySelector('[data-label=nulls]')?.textContent ?? '',"
        " r.querySelector('.strip').getAttribute('aria-label'),"
        " r.querySelectorAll('.null, .fresh').length, r.querySelectorAll('.found').length])",
    )
    assert len(rows) > 60
    for measured, nulls, label, marks, dots in rows:
        assert dots == 1 and marks == len([x for x in nulls.split(", ") if x])
        assert f": {measured}" in label
        assert all(null in label for null in nulls.split(", "))


def test_pictures_are_saved_and_cards_copied(opened):
    script(opened, CATCH)
    buttons = opened.find_elements("css selector", "figure .save button")
    assert len(buttons) == 2 * len(opened.find_elements("css selector", "figure"))
    for button in buttons[:2]:
        button.click()
    (svg, drawn), (png, painted) = script(opened, "return saved")
    assert svg == "attention.svg" and drawn.startswith("data:image/svg+xml;base64,")
    assert png == "attention.png"
    data = base64.b64decode(painted.removeprefix("data:image/png;base64,"))
    assert data[:4] == b"\x89PNG" and len(data) > 10_000
    card = opened.find_element("css selector", "pre.card")
    assert "bayesattn probe " in card.text and "--each 3" in card.text
    button = card.find_element("xpath", "following-sibling::button")
    button.click()
    assert script(
        opened,
        "return new Promise(done => setTimeout(() => done(arguments[0].textContent), 200))",
        button,
    ) in ("Copied", "Marked")


def test_everything_can_be_reached_by_keyboard(opened):
    open_details(opened)
    missed = script(
        opened,
        "return [...document.querySelectorAll('button, summary, .wide, .picture, pre.card')]"
        ".filter(e => { e.focus(); return document.activeElement !== e }).length",
    )
    assert missed == 0


@pytest.mark.parametrize("width", [360, 1280])
def test_it_fits_phones_and_desks(opened, width):
    opened.set_window_size(width, 800)
    open_details(opened)
    inner, content = script(opened, "return [innerWidth, document.documentElement.scrollWidth]")
    assert content <= inner + 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_problem(opened, scheme):
    assert serious_problems(opened, scheme) == []
