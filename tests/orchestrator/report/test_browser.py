"""The page in a real browser: it follows a campaign, shows hostile text as text, and prints every
picture.

Marked `browser`; skipped with the reason where Chromium or playwright is missing.
"""

import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bbkb.orchestrator.report.page import write_report
from tests.orchestrator.report.conftest import BeginLog, running_server
from tests.orchestrator.synthetic_log import SyntheticLog

if TYPE_CHECKING:
    from playwright.sync_api import Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PATIENCE = 120_000  # milliseconds: a busy machine
HOSTILE = "<img src=x onerror=window.harmed=1>"

pytestmark = [
    pytest.mark.browser,
    pytest.mark.thorough,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
    pytest.mark.skipif(importlib.util.find_spec("playwright") is None, reason="playwright is not installed"),
]


@pytest.fixture(scope="module")
def page() -> Iterator["Page"]:
    from playwright.sync_api import sync_playwright

    arguments = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
    arguments += ["--disable-component-update", "--disable-sync", "--enable-unsafe-swiftshader"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        page = browser.new_page(viewport={"width": 390, "height": 844})
        page.set_default_timeout(PATIENCE)
        yield page
        browser.close()


def test_page_follows_a_campaign_and_says_that_the_server_has_ended(page: "Page", begin_log: BeginLog) -> None:
    events = SyntheticLog(trials=60, failure_share=0.2, sessions=1).events()
    log = begin_log("one", events[:60])
    with running_server(log.url) as address:
        page.goto(f"{address}/")
        page.get_by_role("link", name="one", exact=True).click()
        page.wait_for_selector("#best .main-svg")
        page.wait_for_selector("#importance .main-svg")
        assert page.locator("#state").inner_text() == "running"
        log.append(events[60:])
        log.writer.release()
        page.wait_for_function("document.getElementById('state').textContent === 'finished'")
        page.wait_for_function("document.getElementById('page-range').textContent.endsWith('of 60')")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")  # nothing wider than a phone
    page.wait_for_selector("#connection[data-lost=true]")


def test_page_shows_hostile_text_as_text_compares_and_opens_a_trial(page: "Page", begin_log: BeginLog) -> None:
    events = SyntheticLog(trials=30, failure_share=0.5).events()
    begin_log("one", events)
    log = begin_log(HOSTILE, events)
    with running_server(log.url) as address:
        page.goto(f"{address}/")
        for name in ("one", HOSTILE):
            page.get_by_role("checkbox", name=f"compare {name}").check()
        page.locator("#compare").click()
        page.wait_for_selector("#best-maximized .main-svg")
        assert HOSTILE in (page.locator("#differences thead").text_content() or "")
        page.locator("#home").click()
        page.get_by_role("link", name=HOSTILE, exact=True).click()
        page.wait_for_selector("#parameters .main-svg")
        assert page.locator("#title").inner_text() == HOSTILE
        assert "<script>alert(1)</script>" in (page.locator("#problems").text_content() or "")
        page.locator("#trial-table .link").first.focus()
        page.keyboard.press("Enter")
        page.wait_for_selector("#trial[open]")
        assert "Chosen in batch" in page.locator("#trial-body").inner_text()
        page.keyboard.press("Escape")
        assert page.evaluate("window.harmed === undefined")
        assert page.locator("main img").count() == 0


def test_printed_report_has_every_picture(page: "Page", tmp_path: Path) -> None:
    history = SyntheticLog(trials=40).history()
    write_report(history, tmp_path / "report.html", "printed")
    page.goto((tmp_path / "report.html").as_uri())  # waits for the load event, as a program that prints does
    page.evaluate("preparePrint()")
    figures = page.locator("figure").count()
    assert figures >= 5
    assert page.locator("figure:has(.main-svg)").count() == figures
    assert page.evaluate("[...document.querySelectorAll('.plot')].every((plot) => plot.offsetHeight > 50)")
