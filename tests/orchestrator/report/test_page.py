"""The page: complete, safe with any text of the campaign, independent of any network; and in a real browser.

Tests in the browser are marked `browser`; skipped with the reason where Chromium or playwright is missing."""

import base64
import gzip
import hashlib
import importlib.util
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bbkb.orchestrator.campaign.settings import ObjectiveSettings, Workers
from bbkb.orchestrator.report.page import page as page_of
from bbkb.orchestrator.report.page import settings_set, snapshot, to_json, trial_table, write_report
from bbkb.orchestrator.wording import printable
from tests.examples import examples
from tests.orchestrator.report.conftest import BeginLog, running_server
from tests.orchestrator.synthetic_log import NASTY_MESSAGES, SyntheticLog

if TYPE_CHECKING:
    from playwright.sync_api import Page


CAMPAIGNS = {
    "no trials": SyntheticLog(trials=0, is_closed=False),
    "never started": SyntheticLog(trials=0, sessions=0),
    "one trial": SyntheticLog(trials=1, sessions=1),
    "usual": SyntheticLog(),
    "minimizing in virtual time": SyntheticLog(direction="minimize", start=0.0, trials=40),
    "all failed": SyntheticLog(trials=12, failure_share=1.0),
}


class ParsedPage(HTMLParser):
    """The page as a browser's parser sees it: elements with their attributes, and scripts by id."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: dict[str, str] = {}
        self._script = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._script = dict(attrs).get("id") or tag if tag == "script" else ""

    def handle_endtag(self, tag: str) -> None:
        self._script = ""

    def handle_data(self, data: str) -> None:
        if self._script:
            self.scripts[self._script] = self.scripts.get(self._script, "") + data

    @property
    def policy(self) -> str:
        return next(str(attributes["content"]) for _, attributes in self.elements if "http-equiv" in attributes)

    @property
    def snapshot(self) -> Any:
        return json.loads(gzip.decompress(base64.b64decode(self.scripts["snapshot"])))


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_report_has_every_trial_and_session_and_loads_nothing(name: str) -> None:
    history = CAMPAIGNS[name].history()
    page = ParsedPage(page_of("my campaign", snapshot(history, "c"), ""))
    data = page.snapshot
    assert [row[0] for row in data["trials"]["rows"]] == [row.trial for row in history.trials]
    assert [row[-1] for row in data["trials"]["rows"]] == [printable(row.error) for row in history.trials]
    assert len(data["sessions"]["rows"]) == len(history.sessions)
    assert data["state"] == history.state
    assert ("missing" in data["answer"]) == (history.best is None)
    assert sum(int(cause["attempts"].split()[0]) for cause in data["failures"]) == sum(
        bool(attempt.failure) for attempt in history.attempts
    )
    assert not {tag for tag, _ in page.elements} & {"link", "img", "iframe", "object", "embed", "base"}
    assert not any({"src", "action", "srcset"} & set(attributes) for _, attributes in page.elements)
    assert page.policy.startswith("default-src 'none';")
    assert "connect-src 'none'" in page.policy
    digest = base64.b64encode(hashlib.sha256(page.scripts["script"].encode()).digest()).decode()
    assert re.findall(r"'sha256-([^']*)'", page.policy) == [digest]
    assert "'unsafe-inline'" not in page.policy.split("script-src")[1].split(";")[0]


@cache
def tags_of_plain_texts() -> list[str]:
    plain = SyntheticLog(trials=6, failure_share=0).history()
    return [tag for tag, _ in ParsedPage(page_of("title", snapshot(plain, "c"), "")).elements]


@given(st.sampled_from(NASTY_MESSAGES) | st.text(st.characters(codec="utf-8", categories=["P", "S", "L"]), max_size=30))
@settings(max_examples=examples(15))
def test_report_carries_all_texts_from_outside_as_data(text: str) -> None:
    history = SyntheticLog(trials=6, failure_share=0).history()
    settings = replace(history.settings, objective=ObjectiveSettings(command=text), note=text)
    history.campaign = replace(history.campaign, settings=settings)
    for row in history.trials:
        row.pick = replace(row.pick, parameters={**row.parameters, "activation": text})
        row.worker, row.error = text, text
    page = ParsedPage(page_of(text, snapshot(history, text), ""))
    assert [tag for tag, _ in page.elements] == tags_of_plain_texts()
    assert page.snapshot["trials"]["rows"][0][-1] == printable(text)


def test_report_escapes_direction_marks_and_invisible_characters() -> None:
    history, text = SyntheticLog(trials=6, failure_share=0).history(), "a\u202eb\u200bc\x1b"
    history.campaign = replace(history.campaign, settings=replace(history.settings, note=text))
    for row in history.trials:
        row.pick = replace(row.pick, parameters={**row.parameters, text: text})
        row.worker, row.error = text, text
    page = page_of(text, snapshot(history, text), "")
    shown = page + json.dumps(ParsedPage(page).snapshot, ensure_ascii=False)
    assert not set("\u202e\u200b\x1b") & set(shown)
    assert r"a\u202eb\u200bc\x1b" in page
    texts = {"a\u202e": "x\u200b\x1b\\u202e", "b": "Größe 👩\u200d🔬\n"}
    assert json.loads(to_json(texts)) == {r"a\u202e": "x\\u200b\\u001b\\u202e", "b": "Größe 👩\u200d🔬\n"}


def test_snapshot_of_ten_thousand_trials_is_thinned() -> None:
    history = SyntheticLog(trials=12_000, workers=16).history()
    data = snapshot(history, "c")
    assert len(data["trials"]["rows"]) + data["trials"]["unlisted"] == 12_000
    assert len(data["trials"]["rows"]) <= 10_000
    assert len(to_json(data["figures"])) < 2e6
    assert max(len(trace.get("y", ())) for figure in data["figures"] for trace in figure["spec"]["data"]) < 5_000


def test_reports_share_a_file_of_plotly(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    shared = tmp_path / "plotly #1.js"
    for name in ("a.html", "b.html"):
        write_report(CAMPAIGNS["usual"].history(), folder / name, name, shared)
    assert "Plotly" in shared.read_text(encoding="utf-8")
    report = (folder / "b.html").read_text(encoding="utf-8")
    assert len(report) < 2e5
    page = ParsedPage(report)
    assert [str(attributes["src"]) for _, attributes in page.elements if "src" in attributes] == ["../plotly%20%231.js"]


def test_trial_table_has_strict_json_and_machines_if_trials_use_them() -> None:
    history = SyntheticLog(trials=2, failure_share=0).history()
    first = history.trials[0]
    first.pick = replace(first.pick, parameters={"x": float("inf"), "layers": [1, 2]})
    names = [column["name"] for column in trial_table(history)["columns"]]
    assert not {"machines", "GPUs"} & set(names)
    rows = json.loads(json.dumps(trial_table(history), allow_nan=False))["rows"]
    assert (rows[0][names.index("x")], rows[0][names.index("layers")]) == (None, "[1, 2]")
    settings = replace(history.settings, workers=Workers(gpus=8, machines=2))
    history.campaign = replace(history.campaign, settings=settings)
    table = trial_table(history)
    names = [column["name"] for column in table["columns"]]
    assert {(row[names.index("machines")], row[names.index("GPUs")]) for row in table["rows"]} == {(2, 16.0)}


def test_answer_is_the_best_configuration_in_forms_to_copy() -> None:
    history = CAMPAIGNS["usual"].history()
    answer = snapshot(history, "c", figures=[])["answer"]
    copies = dict(answer["copies"])
    assert history.best is not None
    assert eval(copies["Python"]) == dict(history.best.parameters)
    assert copies["arguments"].startswith("--learning_rate ")
    assert [name for name, _ in answer["parameters"]] == list(history.best.parameters)


def test_subtitle_names_objective_strategy_and_seed() -> None:
    parts = snapshot(CAMPAIGNS["usual"].history(), "c", figures=[])["subtitle"].split(" · ")
    settings = CAMPAIGNS["usual"].history().settings
    assert parts[:2] == [settings.objective.name, settings.strategy["name"]]
    assert f"seed {settings.seed}" in parts


def test_settings_are_those_that_differ_from_their_defaults() -> None:
    given = settings_set(CAMPAIGNS["usual"].history().settings)
    assert given["space"]["dropout"] == {"low": 0.0, "high": 0.5}
    assert given["space"]["batch_size"]["log"] is True
    assert given["workers"]["count"] == 4
    assert "store" not in given
    assert "note" not in given


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PATIENCE = 120_000  # milliseconds: a busy machine
HOSTILE = "<img src=x onerror=window.harmed=1>"

with_chromium = pytest.mark.skipif(
    CHROMIUM is None or importlib.util.find_spec("playwright") is None, reason="Chromium or playwright is not installed"
)


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


@pytest.mark.browser
@pytest.mark.thorough
@with_chromium
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


@pytest.mark.browser
@pytest.mark.thorough
@with_chromium
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


@pytest.mark.browser
@pytest.mark.thorough
@with_chromium
def test_printed_report_has_every_picture(page: "Page", tmp_path: Path) -> None:
    history = SyntheticLog(trials=40).history()
    write_report(history, tmp_path / "report.html", "printed")
    page.goto((tmp_path / "report.html").as_uri())  # waits for the load event, as a program that prints does
    page.evaluate("preparePrint()")
    figures = page.locator("figure").count()
    assert figures >= 5
    assert page.locator("figure:has(.main-svg)").count() == figures
    assert page.evaluate("[...document.querySelectorAll('.plot')].every((plot) => plot.offsetHeight > 50)")
