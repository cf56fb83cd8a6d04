"""The page: complete, safe with any text of the campaign, and independent of any network."""

import base64
import gzip
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bbkb.orchestrator.campaign.events import ExistingTaken
from bbkb.orchestrator.history.facts import Fact, facts
from bbkb.orchestrator.history.fold import fold
from bbkb.orchestrator.report import render, write_report
from bbkb.orchestrator.report.page import pack, trial_table
from bbkb.orchestrator.report.pictures import figures
from bbkb.orchestrator.report.progress import Course
from bbkb.orchestrator.settings.worker_sections import WorkerSettings
from bbkb.orchestrator.wording import printable
from tests.examples import examples
from tests.orchestrator.synthetic_log import NASTY_MESSAGES, SyntheticLog

CAMPAIGNS = {
    "no trials": SyntheticLog(trials=0, is_closed=False),
    "never started": SyntheticLog(trials=0, sessions=0),
    "one trial": SyntheticLog(trials=1, sessions=1),
    "usual": SyntheticLog(),
    "minimizing in virtual time": SyntheticLog(direction="minimize", start=0.0, trials=40),
    "all failed": SyntheticLog(trials=12, failure_share=1.0),
    "no optimum": SyntheticLog(has_optimum=False, trials=20),
}


class Page(HTMLParser):
    """The page as a browser's parser sees it: elements with their attributes, scripts by id, and
    the visible text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: dict[str, str] = {}
        self.text, self._open = "", [("", "")]
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._open.append((tag, dict(attrs).get("id") or tag))

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self._open.pop()

    def handle_data(self, data: str) -> None:
        tag, name = self._open[-1]
        if tag == "script":
            self.scripts[name] = self.scripts.get(name, "") + data
        elif not tag:
            self.text += data

    def unpack(self, name: str) -> Any:
        return json.loads(gzip.decompress(base64.b64decode(self.scripts[name])))


@pytest.fixture(scope="module", params=CAMPAIGNS)
def campaign(request: pytest.FixtureRequest) -> SyntheticLog:
    return CAMPAIGNS[request.param]


def test_report_shows_every_trial_session_and_the_configuration(campaign: SyntheticLog) -> None:
    history = campaign.history()
    page = Page(render(history, "my campaign"))
    rows = page.unpack("trial-rows")["rows"]
    assert [row[0] for row in rows] == [row.trial for row in history.trials]
    assert [row[-1] for row in rows] == [printable(row.error) for row in history.trials]
    assert page.text.count("UTC") + page.text.count("(virtual)") == len(history.sessions)
    assert "lengthscale: 0.5" in page.text
    assert "my campaign" in page.text


def test_report_loads_nothing_and_its_policy_forbids_it(campaign: SyntheticLog) -> None:
    page = Page(render(campaign.history(), "c"))
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"link", "img", "iframe", "object", "embed", "base"}
    assert not any({"src", "action", "srcset"} & set(attributes) for _, attributes in page.elements)
    assert all(str(attributes["href"]).startswith("#") for tag, attributes in page.elements if tag == "a")
    policy = next(str(attributes["content"]) for _, attributes in page.elements if "http-equiv" in attributes)
    assert policy.startswith("default-src 'none';")
    assert "http" not in policy
    assert not re.search(r"https?://|@import|url\(", page.scripts["script"])


def test_report_policy_allows_only_the_pages_own_script() -> None:
    page = Page(render(CAMPAIGNS["usual"].history(), "c"))
    policy = next(str(attributes["content"]) for _, attributes in page.elements if "http-equiv" in attributes)
    digest = base64.b64encode(hashlib.sha256(page.scripts["script"].encode()).digest()).decode()
    assert re.findall(r"'sha256-([^']*)'", policy) == [digest]
    assert "'unsafe-inline'" not in policy.split("script-src")[1].split(";")[0]


def test_report_links_all_have_targets(campaign: SyntheticLog) -> None:
    page = Page(render(campaign.history(), "c"))
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {str(attributes["href"])[1:] for tag, attributes in page.elements if tag == "a"} <= set(ids)


@given(st.sampled_from(NASTY_MESSAGES) | st.text(st.characters(codec="utf-8", categories=["P", "S", "L"]), max_size=30))
@settings(max_examples=examples(15), deadline=None)
def test_report_escapes_all_texts_from_outside(text: str) -> None:
    plain = SyntheticLog(trials=6, failure_share=0).history()
    expected = [tag for tag, _ in Page(render(plain, "title")).elements]
    history = SyntheticLog(trials=6, failure_share=0).history()
    history.settings = replace(history.settings, objective=text, plain={**history.settings.plain, "note": [text]})
    for row in history.trials:
        row.pick = replace(row.pick, parameters={**row.parameters, "activation": text})
        row.worker, row.error = text, text
    assert [tag for tag, _ in Page(render(history, text)).elements] == expected


def test_report_escapes_direction_marks_and_invisible_characters() -> None:
    history, text = SyntheticLog(trials=6, failure_share=0).history(), "a\u202eb\u200bc\x1b"
    history.settings = replace(history.settings, plain={**history.settings.plain, "note": text})
    for row in history.trials:
        row.pick = replace(row.pick, parameters={**row.parameters, text: text})
        row.worker, row.error = text, text
    page = render(history, text)
    shown = json.dumps([trial_table(history), [figure.spec for figure in figures(history)]], ensure_ascii=False)
    for character in "\u202e\u200b\x1b":
        assert character not in page
        assert character not in shown
    assert r"a\u202eb\u200bc\x1b" in page


def test_report_of_ten_thousand_trials_is_below_six_megabytes() -> None:
    history = SyntheticLog(trials=10_000, workers=16).history()
    assert len(render(history, "c").encode()) < 6e6


def test_report_file_is_the_rendered_page_with_its_title(tmp_path: Path) -> None:
    history = CAMPAIGNS["one trial"].history()
    write_report(history, tmp_path / "report.html", "run-1")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == render(history, "run-1")


def test_reports_share_a_file_of_plotly(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    shared = tmp_path / "plotly #1.js"
    for name in ("a.html", "b.html"):
        write_report(CAMPAIGNS["usual"].history(), folder / name, name, shared)
    assert "Plotly" in shared.read_text(encoding="utf-8")
    report = (folder / "b.html").read_text(encoding="utf-8")
    assert len(report) < 2e5
    page = Page(report)
    assert [str(attributes["src"]) for _, attributes in page.elements if "src" in attributes] == ["../plotly%20%231.js"]
    assert "plotly-gzip" not in page.scripts


@pytest.mark.parametrize(
    ("name", "expected"),
    [("no trials", "unfinished"), ("never started", "not started"), ("usual", "finished"), ("all failed", "finished")],
)
def test_state_says_how_the_last_session_ended(name: str, expected: str) -> None:
    assert CAMPAIGNS[name].history().state == expected


def test_trial_table_is_strict_json_with_conditional_and_nested_parameters() -> None:
    history = SyntheticLog(trials=2, failure_share=0).history()
    first_row = history.trials[0]
    first_row.pick = replace(first_row.pick, parameters={"x": float("inf"), "layers": [1, 2]})
    table = trial_table(history)
    names = [column["name"] for column in table["columns"]]
    first, second = json.loads(gzip.decompress(base64.b64decode(pack(table))))["rows"]
    assert (first[names.index("x")], first[names.index("layers")]) == (None, "[1, 2]")
    assert (second[names.index("x")], second[names.index("dropout")] is None) == (None, False)


def test_trial_table_shows_machines_and_gpus_if_trials_use_them() -> None:
    history = SyntheticLog(trials=1, failure_share=0).history()
    assert not {"machines", "GPUs"} & {column["name"] for column in trial_table(history)["columns"]}
    history.settings = replace(history.settings, workers=WorkerSettings(gpus=8, machines=2))
    table = trial_table(history)
    names = [column["name"] for column in table["columns"]]
    (row,) = table["rows"]
    assert (row[names.index("machines")], row[names.index("GPUs")]) == (2, 16.0)


def test_pack_rejects_values_that_json_cannot_represent() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        pack({"x": float("nan")})


def test_report_without_a_best_value_shows_the_first_failure() -> None:
    text = render(CAMPAIGNS["all failed"].history(), "failed")
    assert re.search("There is no best value: no evaluation has succeeded; the first one .* failed with ", text)


def test_report_shows_existing_data_separately() -> None:
    events = SyntheticLog(trials=10).events()
    existing = ExistingTaken(
        time=0.0, source="<t>.csv", arms=(4, 2), values=(99.0, 98.0), unmatched=1, first_unmatched="x"
    )
    history = fold([events[0], existing, *events[1:]])
    assert Course(history).caption.endswith("Known results are not drawn.")
    assert Fact("known results", "2", "1 more match no candidate") in facts(history.status())
