"""Report and live page in Chromium at the width of a desktop and of a phone: all that is shown is
inside its card, no two cards overlap, and the report has pictures and tables without scripts.

Marked `browser`; skipped with the reason if Chromium or playwright is missing.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bbkb.orchestrator.report import write_report
from tests.orchestrator.serve.conftest import TOKEN, BeginLog, running_server
from tests.orchestrator.serve.test_browser import CHROMIUM, HOSTILE, PATIENCE, pytestmark  # noqa: F401
from tests.orchestrator.synthetic_log import SyntheticLog
from tests.present import present

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

VIEWS = [(1200, "light"), (1200, "dark"), (420, "light"), (420, "dark")]

# Returns the texts of elements that are wider than the screen or than the card around them, unless
# they scroll, and the texts of cards that overlap the next one.
MISPLACED = """() => {
  const isScrolled = (node) => node.closest(".scroll, pre, dialog, .modebar, .skip, svg");
  const box = (node) => node.getBoundingClientRect();
  const cards = [...document.querySelectorAll(".card")].filter((card) => box(card).width);
  const wide = cards.flatMap((card) => [card, ...card.querySelectorAll("*")].filter((node) =>
    !isScrolled(node) && (box(node).right > Math.min(innerWidth, box(card).right) + 1 || box(node).left < -1)));
  const crossing = cards.filter((card, index) => cards.slice(index + 1).some((other) => !card.contains(other) &&
    box(card).right > box(other).left + 1 && box(other).right > box(card).left + 1 &&
    box(card).bottom > box(other).top + 1 && box(other).bottom > box(card).top + 1));
  const page = document.documentElement.scrollWidth > innerWidth ? [document.documentElement] : [];
  const shown = (node) => `${node.tagName} ${node.className}: ${node.textContent.slice(0, 60)}`;
  return [...page, ...wide, ...crossing].map(shown);
}"""
# Returns the contrast of the text of each element with the page behind it, by WCAG 2.
CONTRAST = """() => {
  const light = (color) => { const [r, g, b] = color.match(/[\\d.]+/g).map((part) => part / 255).map((part) =>
    part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const card = light(getComputedStyle(document.querySelector(".card")).backgroundColor);
  return [...document.querySelectorAll("dt, dd, small, h2, figcaption, td, a")].map((node) => {
    const ink = light(getComputedStyle(node).color);
    return (Math.max(ink, card) + 0.05) / (Math.min(ink, card) + 0.05); });
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with long and hostile names, ten tags and a note."""
    history = SyntheticLog(trials=40, failure_share=0.2).history()
    tags = tuple(f"a-long-tag-{index}" for index in range(10))
    history.settings = replace(history.settings, tags=tags, note=HOSTILE + "x" * 300)
    for row in history.trials:
        row.pick = replace(row.pick, parameters={**row.parameters, f"{HOSTILE} {'long' * 20}": "y" * 200})
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(history, path, f"{HOSTILE} {'z' * 100}")
    return path


def open_page(browser: "Browser", width: int, scheme: str, scripts: bool = True) -> "Page":
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if scheme == "dark" else "light",
        java_script_enabled=scripts,
    )
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    return page


@pytest.mark.parametrize(("width", "scheme"), VIEWS)
def test_report_fits_the_screen_in_both_color_schemes(
    browser: "Browser", report: Path, width: int, scheme: str
) -> None:
    page = open_page(browser, width, scheme)
    page.goto(report.as_uri())
    page.wait_for_selector("#utilization .main-svg")
    assert page.evaluate(MISPLACED) == []
    assert min(page.evaluate(CONTRAST)) >= 4.5
    assert page.locator("#best .static").is_hidden()
    assert page.evaluate("window.harmed === undefined")
    assert page.locator("img").count() == 0
    page.context.close()


@pytest.mark.parametrize("width", [1200, 420])
def test_report_without_scripts_has_pictures_and_tables(browser: "Browser", report: Path, width: int) -> None:
    page = open_page(browser, width, "light", scripts=False)
    page.goto(report.as_uri())
    for name in ("best", "importance"):
        box = present(page.locator(f"#{name} .static").bounding_box())
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
        assert box["height"] > 100
    assert page.locator(".plot:visible").count() == 0
    assert page.locator("#trial-table tbody tr:visible").count() == 40
    page.emulate_media(media="print")
    assert page.locator("#best .static").is_visible()
    page.context.close()


@pytest.mark.parametrize(("width", "scheme"), VIEWS)
def test_list_and_page_of_a_campaign_fit_the_screen(
    browser: "Browser", begin_log: BeginLog, width: int, scheme: str
) -> None:
    events = SyntheticLog(trials=40, failure_share=0.2, sessions=1).events()
    log = begin_log("one", events)
    begin_log(f"{HOSTILE} {'a-long-name' * 10}", events)
    with running_server(log.url) as address:
        page = open_page(browser, width, scheme)
        page.goto(f"{address}/?token={TOKEN}")
        page.wait_for_selector("#campaigns a")
        assert page.evaluate(MISPLACED) == []
        scrolls = "[...document.querySelectorAll('main .scroll')].some((node) => node.scrollWidth > node.clientWidth)"
        assert not page.evaluate(scrolls)
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.get_by_role("link", name="one", exact=True).focus()
        page.keyboard.press("Enter")
        page.wait_for_selector("#figure-utilization .main-svg")
        page.wait_for_selector("#trial-table tbody td")
        assert page.evaluate(MISPLACED) == []
        assert min(page.evaluate(CONTRAST)) >= 4.5
        page.context.close()
