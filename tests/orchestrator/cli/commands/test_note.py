"""Tests of orchestrator/cli/commands/note.py: notes and tags reach list, report and export."""

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from bbkb.orchestrator.api import Result, load
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.report.page import render
from tests.histories import history_of
from tests.orchestrator.quick import bbkb, tune_here


def run(tmp_path: Path, name: str, **settings: Any) -> Result:
    return tune_here(tmp_path / "runs", lambda x: x, settings=settings, evaluations=3, name=name)


def output_of(*arguments: object) -> str:
    return bbkb(*arguments).output


def test_list_finds_runs_by_tags_of_the_file_and_added_tags(tmp_path: Path) -> None:
    first, second = run(tmp_path, "one", tags=["baseline", "mnist"]), run(tmp_path, "two")
    output_of("note", second.folder, "--tag", "mnist", "--tag", "wide")
    assert first.folder.name in (listed := output_of("list", tmp_path / "runs", "--tag", "mnist"))
    assert second.folder.name in listed
    assert "mnist wide" in listed
    only = output_of("list", tmp_path / "runs", "--tag", "mnist", "--tag", "wide")
    assert second.folder.name in only
    assert first.folder.name not in only
    assert "no runs with the tag none" in output_of("list", tmp_path / "runs", "--tag", "none")


def test_notes_are_printed_reported_and_exported_with_their_trial(tmp_path: Path) -> None:
    noted = run(tmp_path, "one", note="is <b>lr</b> enough?")
    output_of("note", noted.folder, "looks noisy")
    output_of("note", noted.folder, "look at its log", "--trial", 1, "--tag", "odd")
    printed = output_of("note", noted.folder)
    assert "looks noisy" in printed
    assert "[odd] trial 1: look at its log" in printed
    assert "looks noisy" not in output_of("note", noted.folder, "--trial", 1)
    page = render(history_of(load(noted.folder)), "one")
    for part in ("is &lt;b&gt;lr&lt;/b&gt; enough?", "looks noisy", "trial 1", "look at its log"):
        assert part in page
    rows = list(csv.DictReader(io.StringIO(output_of("export", noted.folder))))
    assert [(row["trial.tags"], row["trial.note"]) for row in rows] == [("", ""), ("odd", "look at its log"), ("", "")]


def test_note_rejects_an_unknown_trial(tmp_path: Path) -> None:
    noted = run(tmp_path, "one")
    with pytest.raises(UserError, match="one of the 3 trials"):
        bbkb("note", noted.folder, "x", "--trial", "3")


def test_run_can_add_tags(tmp_path: Path) -> None:
    file = tmp_path / "campaign.yaml"
    file.write_text(
        "name: tagged\nobjective: {name: branin}\nbudget: {evaluations: 2}\ntags: [first]\n"
        "workers: {executor: inline}\nstrategy: {name: uniform}\n"
    )
    output_of("run", file, "--set", f"runs={tmp_path / 'runs'}", "--tag", "second", "--quiet")
    (folder,) = (tmp_path / "runs").glob("tagged-*")
    assert history_of(load(folder)).tags == ("first", "second")
