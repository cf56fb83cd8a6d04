"""The live page in a real browser: it draws, follows, survives a restart of the server, and shows
hostile text as text.

Marked `browser`; skipped with the reason where Chromium or playwright is missing.
"""

import importlib.util
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from bbkb.orchestrator.campaign.events import ReportsArrived
from bbkb.orchestrator.campaign.trainings.reports import StepReport
from tests.orchestrator.serve.conftest import TOKEN, BeginLog, running_server
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
    arguments += ["--disable-component-update", "--disable-sync"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        page = browser.new_page(viewport={"width": 390, "height": 844})
        page.set_default_timeout(PATIENCE)
        yield page
        browser.close()


def test_page_follows_a_campaign_and_survives_a_restart_of_the_server(page: "Page", begin_log: BeginLog) -> None:
    events = SyntheticLog(trials=60, failure_share=0.2, sessions=1).events()
    log = begin_log("one", events[:60])
    with running_server(log.url) as address:
        port = int(address.rpartition(":")[2])
        page.goto(f"{address}/?token={TOKEN}")
        page.get_by_role("link", name="one", exact=True).click()
        page.wait_for_selector("#best-plot .main-svg")
        page.wait_for_selector("#figure-importance .main-svg")
        assert "token" not in page.url
        before = int(page.locator("#progress").get_attribute("value") or 0)
        log.append(events[60:120])
        page.wait_for_function(f"document.getElementById('progress').value > {before}")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")  # nothing wider than a phone
    page.wait_for_selector("#connection[data-lost=true]")
    log.append(events[120:])
    done = SyntheticLog(trials=60, failure_share=0.2, sessions=1).history().status().trials.done
    with running_server(log.url, port):
        page.wait_for_function(f"document.getElementById('progress').value == {done}")
        assert page.locator("#connection").inner_text().startswith("connected")
        assert page.evaluate("results.points.length === results.count")  # nothing twice, nothing missing


def test_page_shows_hostile_text_as_text_and_opens_a_trial_by_keyboard(page: "Page", begin_log: BeginLog) -> None:
    synthetic = SyntheticLog(trials=30, failure_share=0.5)
    log = begin_log(HOSTILE, synthetic.events())
    with running_server(log.url) as address:
        page.goto(f"{address}/?token={TOKEN}")
        page.get_by_role("link", name=HOSTILE, exact=True).click()
        page.wait_for_selector("#figure-parameters, #figure-workers")
        assert page.locator("#title").inner_text() == HOSTILE
        assert "<script>alert(1)</script>" in (page.locator("#failures-card").text_content() or "")
        link = page.locator("#recent .link").first
        link.focus()
        page.keyboard.press("Enter")
        page.wait_for_selector("#trial-dialog[open] h3")
        assert "Chosen in batch" in page.locator("#trial-body").inner_text()
        page.keyboard.press("Escape")
        page.wait_for_selector("#trial-dialog:not([open])", state="attached")
        assert page.evaluate("window.harmed === undefined")
        assert page.locator("main img").count() == 0


def test_page_draws_reports_of_a_trial_with_their_metrics(page: "Page", begin_log: BeginLog) -> None:
    log = begin_log("one", SyntheticLog(trials=3, sessions=1, is_closed=False).events())
    reports = tuple(StepReport(0, 1, step, 0.5 * step) for step in range(1, 6))
    log.append([ReportsArrived(time=1e9, reports=reports, metrics=((0, 2, {HOSTILE: 0.25}),))])
    with running_server(log.url) as address:
        page.goto(f"{address}/campaign/one?token={TOKEN}")
        page.locator("#number").fill("0")
        page.locator("#find button").click()
        page.wait_for_selector("#trial-body .plot .main-svg")
        assert f"step 2: 1, {HOSTILE} 0.25" in page.locator("#trial-body").inner_text()
        width = "document.querySelector('#trial-body .main-svg').clientWidth <= innerWidth"
        assert page.evaluate(width)
        assert page.evaluate("window.harmed === undefined")


def test_page_compares_chosen_campaigns_in_a_figure_and_a_table(page: "Page", begin_log: BeginLog) -> None:
    events = SyntheticLog(trials=20, sessions=1).events()
    begin_log("one", events)
    log = begin_log(HOSTILE, events[: len(events) // 2])
    with running_server(log.url) as address:
        page.goto(f"{address}/?token={TOKEN}")
        page.get_by_role("checkbox", name="compare one").check()
        assert page.locator("#compare").is_disabled()
        page.get_by_role("checkbox", name=f"compare {HOSTILE}").check()
        page.locator("#compare").click()
        page.wait_for_selector("#results-figures .main-svg")
        page.wait_for_selector("#differences tbody tr")
        assert page.locator("#differences thead a").all_inner_texts() == ["one", HOSTILE]
        assert "best value" in page.locator("#differences tbody").inner_text()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert page.evaluate("window.harmed === undefined")
