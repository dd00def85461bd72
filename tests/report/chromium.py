"""A real browser for pages: Chromium, driven by Selenium."""

import json
import shutil
import time
from importlib.resources import files

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
DRIVER = shutil.which("chromedriver")
MARKS = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(
        not (CHROMIUM and DRIVER),
        reason="needs a browser: apt-get install chromium chromium-driver",
    ),
    pytest.mark.xdist_group("browser"),
]
FLAGS = ("headless=new", "no-sandbox", "disable-background-networking", "disable-gpu")


def start():
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in FLAGS:
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(options=options, service=Service(DRIVER))


def script(browser, text, *arguments):
    return browser.execute_script(text, *arguments)


def open_details(browser):
    script(browser, "for (const d of document.querySelectorAll('details')) d.open = true")


def complaints(browser):
    """What the browser logged, and requests that leave the file."""
    time.sleep(0.3)
    sent = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    addresses = {
        event["params"]["request"]["url"].split(":")[0]
        for event in sent
        if event["method"] == "Network.requestWillBeSent"
    }
    return [*browser.get_log("browser"), *sorted(addresses - {"file", "data", "about"})]


def serious_problems(browser, scheme):
    """What axe finds in light or dark, with all details open."""
    feature = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": feature})
    open_details(browser)
    script(browser, files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8"))
    found = browser.execute_async_script(
        "const done = arguments[arguments.length - 1]; axe.run().then(done)"
    )
    return [
        (problem["id"], [node["html"][:120] for node in problem["nodes"]][:3])
        for problem in found["violations"]
        if problem["impact"] in ("serious", "critical")
    ]
