"""Tests of the record of one trial, as plain values and as printed by `bbkb status --trial`."""

import json
from pathlib import Path

import pytest

from bbkb import Result, tune
from bbkb.objectives.objective import Report
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.history.one_trial import describe_trial
from tests.orchestrator.runs import bbkb, history_of, tune_here
from tests.present import present


def trained(x: float, report: Report) -> float:
    report(x / 2.0, 1)
    print("trained", x)
    if x > 0.6:
        raise ValueError("x is too large")
    return x


def tent(x: float) -> float:
    return -abs(x - 0.3)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Result:
    settings = {"workers": {"executor": "inline", "retries": 0}}
    return tune_here(tmp_path_factory.mktemp("my runs"), trained, settings=settings, evaluations=6)


def status_of(run: Result, *arguments: str) -> str:
    return bbkb("status", run.folder, *arguments).output


def test_trial_status_shows_the_whole_error_and_the_path_of_the_output(run: Result) -> None:
    failed = next(row for row in history_of(run).trials if row.status == "failed")
    shown = status_of(run, "--trial", str(failed.trial))
    assert f"trial {failed.trial}: failed" in shown
    assert "ValueError: x is too large" in shown
    assert "raise ValueError" in shown  # the line of the user's code
    assert "step 1: " in shown
    assert "Chosen in batch" in shown
    assert f"bbkb logs '{run.folder}' --trial {failed.trial}" in " ".join(shown.split())


def test_trial_traceback_shows_only_the_users_calls(run: Result) -> None:
    failed = next(row for row in history_of(run).trials if row.status == "failed")
    described = present(describe_trial(history_of(run), failed.trial))
    message = described["attempts"][0]["message"]
    assert "in trained" in message
    assert "workers/evaluate.py" not in message


def test_trial_status_can_be_written_as_json(run: Result) -> None:
    best = run.best.trial
    described = json.loads(status_of(run, "--trial", str(best), "--json"))
    assert described["value"] == run.best.value
    assert described["outputs"] == [1]


def test_trial_status_rejects_an_unknown_trial(run: Result) -> None:
    with pytest.raises(UserError, match="must be one of the 6 trials"):
        status_of(run, "--trial", "6")
    assert describe_trial(history_of(run), 6) is None


def test_trial_status_finds_a_run_by_its_name(run: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runs").symlink_to(run.folder.parent)
    monkeypatch.chdir(tmp_path)
    bbkb("status", run.folder.name)


def test_trial_reason_names_the_priors_of_the_space(tmp_path: Path) -> None:
    settings = {"runs": str(tmp_path), "workers": {"executor": "inline"}}
    for prior, words in (({"prior": 0.3}, "best, including the priors of the space:"), ({}, "best: a predicted")):
        space = {"x": {"low": 0.0, "high": 1.0, **prior}}
        result = tune(tent, space, evaluations=12, direction="maximize", progress=False, settings=settings)
        described = present(describe_trial(history_of(result), 11))
        assert f"because it could still be the {words}" in described["reason"]
