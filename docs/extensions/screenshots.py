"""Photograph report and live page for the documentation: `make screenshots RUN=folder`.

Needs playwright and Chromium (/usr/bin/chromium, or the program in `CHROMIUM`).
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from bbkb.orchestrator.history.fold import read_history
from bbkb.orchestrator.report.page import write_report
from bbkb.orchestrator.store.runs import open_run

DOCS = Path(__file__).parents[1]


def main() -> None:
    """Take all pictures of the run whose folder is the first argument."""
    run = open_run(Path(sys.argv[1]))
    serve = [str(Path(sys.executable).parent / "bbkb"), "serve", str(run.folder), "--port", "0"]
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        program = os.environ.get("CHROMIUM", "/usr/bin/chromium")
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        report = Path(folder) / "report.html"
        write_report(read_history(run), report, run.name)
        photograph(browser, report.as_uri(), "report", (1300, 1150))
        server = subprocess.Popen(serve, stdout=subprocess.PIPE, text=True)
        assert server.stdout is not None
        line = next(text for text in server.stdout if "http" in text)
        (address,) = re.findall(r"http\S+", line)
        photograph(browser, address, "live-light", (1280, 860))
        photograph(browser, address, "live-dark", (1280, 860), "#importance")
        photograph(browser, address, "live-phone", (390, 844))
        server.terminate()


def photograph(
    browser: Browser,
    address: str,
    name: str,
    size: tuple[int, int],
    top: str = "body",
) -> None:
    """Write `name`.png: the page at `address` on a screen of this size, from the element `top` on.

    The color scheme is dark if the name says so.
    """
    page = browser.new_page(
        viewport={"width": size[0], "height": size[1]},
        color_scheme="dark" if "dark" in name else "light",
    )
    page.goto(address)
    page.wait_for_selector("#workers .main-svg", timeout=120_000)
    page.wait_for_timeout(1000)
    page.evaluate("top => document.querySelector(top).scrollIntoView()", top)
    page.wait_for_timeout(1000)
    page.screenshot(path=DOCS / f"{name}.png")
    page.close()


if __name__ == "__main__":
    main()
