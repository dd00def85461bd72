"""Pictures of the recorded ledger's page, as wide as a desk and as a phone: `make screenshots`."""

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

ROOT = Path(__file__).parent.parent
IMAGES = ROOT / "docs" / "images"
FLAGS = ("headless=new", "no-sandbox", "disable-background-networking", "hide-scrollbars")
EXPLORER = "document.querySelector('[data-part=prior]').scrollIntoView()"
SHOTS = {
    "page-desk": (1280, 860, "light", ""),
    "page-phone": (390, 844, "light", ""),
    "page-dark": (1280, 860, "dark", EXPLORER),
}
"""Width, height, colours, and a script that goes to the place."""


def main(images: Path = IMAGES) -> None:
    """Write every picture into `images`."""
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (browser and driver):
        sys.exit("Screenshots need a browser: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for flag in FLAGS:
        options.add_argument(f"--{flag}")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "index.html"
        command = (sys.executable, "-m", "bayesattn", "report", "results", "-o", str(page))
        subprocess.run(command, cwd=ROOT, check=True)
        chrome = webdriver.Chrome(options=options, service=Service(driver))
        try:
            for name, shot in SHOTS.items():
                _shoot(chrome, page, images / f"{name}.png", *shot)
        finally:
            chrome.quit()


def _shoot(
    chrome: webdriver.Chrome,
    page: Path,
    image: Path,
    width: int,
    height: int,
    scheme: str,
    script: str,
) -> None:
    # a window cannot be as narrow as a phone, but the page can be told so
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    colours = [{"name": "prefers-color-scheme", "value": scheme}]
    chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": colours})
    chrome.get(page.as_uri())
    chrome.execute_script(script)
    time.sleep(0.5)  # canvases are drawn in the next frames
    chrome.save_screenshot(str(image))


if __name__ == "__main__":
    main()
