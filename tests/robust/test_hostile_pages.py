"""Script in names, prompts, titles and corpora: shown as text, in a real browser, and never run."""

import shutil
from dataclasses import replace

import pytest

from bayesattn.claims import Tier
from bayesattn.ledger.ledger import Ledger
from bayesattn.ledger.study import Exhibit
from bayesattn.probes.examination import Criterion, measured_row
from bayesattn.probes.measured import Measured
from bayesattn.report import html
from bayesattn.report.page import render
from bayesattn.report.probe import Section
from bayesattn.report.runs import render_runs
from bayesattn.runs import Run
from tests.ledger.toy import CLAIM, run_study, statement, toy
from tests.report.chromium import CHROMIUM

ATTACKS = (
    "<script>window.hacked = 1</script>",
    "</script><script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 1'>",
    '"><svg onload="window.hacked = 1">',
    "'); window.hacked = 1; ('",
    "<!--<script>window.hacked = 1",
    "javascript:window.hacked=1",
    "{{ 7 * 7 }}{% include '/etc/passwd' %}",
    "\u2028window.hacked = 1\u2028",
)
ALL = " ".join(ATTACKS)


def exhibits(self, tier, numbers):
    series = [{"name": ALL, "y": [1, 0.5]}]
    data = {"x": [0, 1], "series": series, "xLabel": ALL, "yLabel": ALL, "logX": False}
    yield Exhibit(kind="curves", title=ALL, caption=ALL, data=data)


def crash(self, tier, seed):
    raise RuntimeError(ALL)


def of_a_ledger(folder):
    words = {"text": ALL, "scale": ALL, "comparator": ALL, "unit": ALL, "reported": ALL}
    claim = replace(CLAIM, title=ALL, source=ALL, method=ALL, mind=ALL)
    claim = replace(claim, statements=(statement(**words),))
    good = toy("good", exhibits=exhibits)
    bad = toy("bad", measure=crash)
    type(good).claim, type(bad).claim = replace(claim, id=ATTACKS[3]), replace(claim, id="bad")
    return render(
        Ledger({s.claim.id: run_study(s, Tier.FULL, folder) for s in (good, bad)}), folder
    )


def of_runs(folder):
    found = []
    for number, attack in enumerate(ATTACKS):
        name = attack.replace("/", "∕")
        config = {"training": {"note": attack}, "data": {attack: attack}, "command": attack}
        run = Run.create(folder / f"{number}{name}", config)
        for step in (1, 2):
            run.log({"step": step, "loss": 1.0})
        found.append(run.folder)
    (found[0] / "environment.json").write_text(f'{{"python": "{ATTACKS[2]}"}}')
    return render_runs(found)


def of_a_probe(folder):
    row = measured_row(ALL, ALL, ALL, Measured(value=0.5, nulls={ALL: 0.1}))
    line = Criterion(name=ALL, rule=ALL, holds=True, found=ALL)
    said = {"card": {ALL: ALL}, "notes": [ALL], "skipped": {ALL: ALL}, "prompts": [ALL]}
    section = Section(rows=[row], name=ALL, criteria={ALL: [line]}, **said)
    picture = dict.fromkeys(("name", "heading", "caption", "alt"), ALL)
    picture |= {"sentences": [ALL], "source": "data:,"}
    content = {"title": ALL, "subtitle": ALL, "sections": [section]}
    return html.render("probe.html", lead=[picture], pictures=[picture], **content)


PAGES = {"ledger": of_a_ledger, "runs": of_runs, "probe": of_a_probe}


@pytest.fixture(scope="module", params=PAGES)
def page(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    path = folder / "index.html"
    path.write_text(PAGES[request.param](folder), encoding="utf-8")
    return path


def test_nothing_of_an_attack_is_markup(page):
    text = page.read_text(encoding="utf-8")
    for attack in (*ATTACKS[:4], ATTACKS[5]):
        assert attack not in text
    assert "49" not in text.partition("<main>")[0] and "root:x" not in text
    assert text.count("Content-Security-Policy") == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.xdist_group("browser")
@pytest.mark.skipif(not (CHROMIUM and shutil.which("chromedriver")), reason="needs a browser")
def test_no_script_of_a_stranger_runs(page, browser):
    browser.get(page.as_uri())
    browser.execute_script("for (const d of document.querySelectorAll('details')) d.open = true")
    assert browser.execute_script("return window.hacked === undefined")
    shown = browser.execute_script("return document.body.innerText")
    assert ATTACKS[0] in shown  # as text
    browser.execute_script("window.hacked = 2")  # the same eyes would have seen it
    assert browser.execute_script("return window.hacked") == 2


@pytest.fixture(scope="module")
def browser():
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in ("headless=new", "no-sandbox", "disable-background-networking", "disable-gpu"):
        options.add_argument(f"--{flag}")
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    yield driver
    driver.quit()
