"""The page in a real browser, opened from disk: Chromium, driven by Selenium."""

import json
import math
import time
from dataclasses import replace

import pytest
import torch

from bayesattn.claims import Tier
from bayesattn.claims.exhibits import belief_exhibit, heatmap_exhibit, manifold_exhibit
from bayesattn.ledger.ledger import Ledger
from bayesattn.ledger.study import Exhibit
from bayesattn.models.architectures import Transformer, build
from bayesattn.priors import GeneralizedGaussian
from bayesattn.report.page import render
from bayesattn.tunnels import HMM, Bijection
from tests.ledger.toy import crash, paper, run_study, toy
from tests.report.chromium import MARKS, complaints, open_details, script, serious_problems

pytestmark = MARKS


def exhibits(self, tier, numbers):
    tunnel = Bijection(5, replacement=True)
    model = build(Transformer(layers=2, width=16, heads=2), tunnel, 0)
    words = {"title": "A <title>", "caption": "A caption."}
    curves = {
        "x": [0, 10, 100],
        "series": [{"name": "one", "y": [1, 0.5, 0]}],
        "xLabel": "step",
        "yLabel": "left",
        "logX": True,
    }
    labels = ("encoding", "length")
    return [
        belief_exhibit(model, tunnel, **words),
        manifold_exhibit(model, tunnel, **words),
        heatmap_exhibit(
            [[0, 1], [0.5, 0.2]], ["a", "b"], ["1x", "2x"], labels=labels, unit="u", **words
        ),
        Exhibit(kind="curves", data=curves, **words),
    ]


def filtering(self, tier, numbers):
    tunnel = HMM(3, 3, 6)
    model = build(Transformer(layers=2, width=16, heads=2), tunnel, 0)
    return [belief_exhibit(model, tunnel, title="filter", caption="A caption.")]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    studies = [
        toy("good", exhibits=exhibits),
        toy("filter", exhibits=filtering),
        toy("wrong", level=-20.0),
        toy("unclear", level=-1.0),
        toy("broken", measure=crash),
        paper(),
    ]
    ledger = Ledger({s.claim.id: run_study(s, Tier.FULL, folder) for s in studies})
    path = folder / "index.html"
    path.write_text(render(ledger, folder), encoding="utf-8")
    return path


@pytest.fixture
def opened(browser, page):
    browser.set_window_size(1280, 900)
    browser.get("about:blank")
    browser.get(page.as_uri())
    return browser


def slide(browser, name, value):
    script(
        browser,
        "const i = document.getElementById(arguments[0]); i.value = arguments[1];"
        "i.dispatchEvent(new Event('input'))",
        name,
        str(value),
    )


def test_no_complaints_and_no_requests(opened):
    open_details(opened)
    assert complaints(opened) == []


@pytest.mark.parametrize(
    "settings",
    [
        {"alpha": -0.7, "beta": 1, "mu": 0, "scale": 0, "length": 8},
        {"alpha": 2, "beta": -0.6, "mu": 3, "scale": 0.5, "length": 10},
        {"alpha": 0, "beta": 0, "mu": 0, "scale": 1, "length": 6},
        {"alpha": -6, "beta": 2, "mu": -20, "scale": 1.5, "length": 7},
    ],
)
def test_sliders_give_what_python_computes(opened, settings):
    for name, value in settings.items():
        slide(opened, f"prior-{name}", value)
    found = script(opened, "return document.querySelector('[data-part=prior]').found")
    count = 2 ** settings["length"]
    prior = GeneralizedGaussian(1).double()
    with torch.no_grad():
        prior.theta_alpha.fill_(settings["alpha"])
        prior.theta_beta.fill_(settings["beta"])
        prior.theta_mu.fill_(float(torch.asinh(torch.tensor(settings["mu"] / 2).double())))
        log_prior = prior.log_prior(torch.arange(count).double())[0].double()
    assert found["settings"]["count"] == count
    torch.testing.assert_close(
        torch.tensor(found["prior"]).double(), log_prior.softmax(0), atol=1e-6, rtol=1e-4
    )
    content = torch.tensor(found["likelihood"]).double().log()
    factor = settings["scale"] * torch.log(torch.tensor(float(count))) if settings["scale"] else 1
    posterior = (factor * (content + log_prior)).softmax(0)
    torch.testing.assert_close(
        torch.tensor(found["posterior"]).double(), posterior, atol=1e-5, rtol=1e-3
    )


def test_named_priors_are_points_of_the_same_space(opened):
    buttons = opened.find_elements("css selector", "[data-part=prior] .named button")
    buttons[0].click()
    found = script(opened, "return document.querySelector('[data-part=prior]').found")
    count = found["settings"]["count"]
    assert found["prior"] == pytest.approx([1 / count] * count)
    buttons[1].click()
    found = script(opened, "return document.querySelector('[data-part=prior]').found")
    assert found["prior"][1] / found["prior"][0] == pytest.approx(math.exp(-0.5), rel=1e-4)


def test_the_player_steps_through_a_sequence(opened):
    host = "good-beliefs"
    text = script(opened, "return document.getElementById('data-good-beliefs').textContent")
    data = json.loads(text)
    steps = len(data["sequences"][0]["posterior"])
    slide(opened, f"{host}-step", steps - 1)
    found = script(opened, f"return document.getElementById('{host}').found")
    assert found["step"] == steps - 1
    assert found["bayes"] == data["sequences"][0]["posterior"][-1]
    bayes, model = (torch.tensor(found[name]).double() for name in ("bayes", "model"))
    kl = torch.special.xlogy(bayes, bayes / model).sum() / torch.log(torch.tensor(2.0))
    assert found["divergence"] == pytest.approx(float(kl), abs=1e-6)
    back = opened.find_elements("css selector", f"#{host} button")[0]
    back.click()
    assert script(opened, f"return document.getElementById('{host}').found.step") == steps - 2


def test_the_cloud_turns_by_keyboard(opened):
    from selenium.webdriver.common.keys import Keys

    script(opened, "document.getElementById('good').open = true")
    canvas = opened.find_element("css selector", "#good canvas")
    before = script(opened, "return document.getElementById('good-manifold').found.yaw")
    canvas.send_keys(Keys.ARROW_RIGHT)
    after = script(opened, "return document.getElementById('good-manifold').found.yaw")
    assert after == pytest.approx(before + 0.1)


def shown(browser):
    rows = browser.find_elements("css selector", "tbody tr")
    return [row.find_element("css selector", ".id").text for row in rows if row.is_displayed()]


def test_the_tables_sort_and_filter(opened):
    names = ["broken", "filter", "good", "unclear", "wrong"]
    assert shown(opened) == ["paper", *names]
    header = opened.find_elements("css selector", "[aria-labelledby=ours] thead button")
    header[0].click()
    header[0].click()
    assert shown(opened) == ["paper", *names[::-1]]
    header[1].click()  # by verdict; what is alike stays in the order it had
    assert shown(opened) == ["paper", "broken", "unclear", "good", "filter", "wrong"]
    opened.find_element("css selector", "[data-filter=no]").click()
    assert shown(opened) == ["paper", "wrong"]
    opened.find_element("css selector", "[data-filter=error]").click()
    assert set(shown(opened)) == {"paper", "wrong", "broken"}
    opened.find_element("id", "find").send_keys("brok")
    assert shown(opened) == ["broken"]
    assert opened.find_element("id", "shown").text == "1 of 6 rows"


def test_every_claim_opens_by_its_link(opened):
    for name in ("good", "wrong", "broken"):
        script(opened, f"document.querySelector('a.id[href=\"#{name}\"]').click()")
        time.sleep(0.1)
        assert script(opened, f"return document.getElementById('{name}').open")


@pytest.mark.parametrize("width", [360, 1280])
def test_it_fits_phones_and_desks(opened, width, page):
    opened.set_window_size(width, 800)
    open_details(opened)
    inner, content = script(opened, "return [innerWidth, document.documentElement.scrollWidth]")
    assert content <= inner + 1
    assert len(opened.get_screenshot_as_png()) > 10_000


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_problem(opened, scheme):
    assert serious_problems(opened, scheme) == []


def test_a_ledger_without_exhibits_works_too(browser, page, tmp_path):
    record = replace(run_study(toy("good"), Tier.QUICK, tmp_path), exhibits=())
    path = tmp_path / "index.html"
    path.write_text(render(Ledger({"good": record}), tmp_path), encoding="utf-8")
    browser.get(path.as_uri())
    assert browser.get_log("browser") == []
    assert shown(browser) == ["good"]
