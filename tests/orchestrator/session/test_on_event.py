"""The command `on_event` hears of the first failure and of the end; the campaign never waits for it, and its
failure is only logged."""

import json
from pathlib import Path
from typing import Any

import pytest

from bbkb.orchestrator.campaign.events import Event, SessionClosed, SessionOutcome, TrialFailed
from bbkb.orchestrator.campaign.state import CampaignState
from bbkb.orchestrator.campaign.status import status_of
from bbkb.orchestrator.session import on_event
from bbkb.orchestrator.store.runs import Run
from bbkb.workers.messages import FailureKind
from tests.orchestrator.quick import tune_here

CLOSED = SessionClosed(time=2.0, outcome=SessionOutcome.FINISHED, reason="budget spent")
KEEP = "cat >> got; echo >> got"


def failed_trial(failure: FailureKind = FailureKind.ERROR) -> TrialFailed:
    attempt: dict[str, Any] = {"trial": 3, "attempt": 1, "started": 0.0, "finished": 1.0, "worker": "w"}
    return TrialFailed(time=1.0, failure=failure, message="no data", is_final=True, **attempt)


def run(command: str | None, folder: Path, *events: Event) -> list[dict[str, str]]:
    """The notices that the command has kept."""
    own = Run(folder, folder / "campaign.sqlite", "first")
    with on_event.commands(command, own, lambda: status_of("first", CampaignState())) as take:
        for event in events:
            take(event)
    kept = folder / "got"
    return [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []


def test_command_hears_of_the_first_failure_and_the_end_once(tmp_path: Path) -> None:
    events = failed_trial(FailureKind.CANCELLED), failed_trial(), failed_trial(), CLOSED
    failure, end = run(KEEP, tmp_path, *events)
    assert (failure["event"], end["event"]) == ("failure", "ended")
    assert failure["text"] == "bbkb campaign first: trial 3 failed (error): no data"
    assert end["text"].startswith("bbkb campaign first: finished: budget spent; ")
    assert end["run"] == str(tmp_path)


def test_notice_is_also_in_the_environment(tmp_path: Path) -> None:
    run('echo "$BBKB_EVENT $BBKB_CAMPAIGN $BBKB_RUN" > there', tmp_path, CLOSED)
    assert (tmp_path / "there").read_text() == f"ended first {tmp_path}\n"


def test_end_without_an_outcome_is_told_and_no_command_is_nothing(tmp_path: Path) -> None:
    (end,) = run(KEEP, tmp_path)
    assert "without an outcome" in end["text"]
    (tmp_path / "got").unlink()
    assert run(None, tmp_path, CLOSED) == []


@pytest.mark.parametrize(("command", "words"), [("echo no way >&2; exit 3", "exit code 3"), ("sleep 60", "Timeout")])
def test_failed_command_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, command: str, words: str
) -> None:
    monkeypatch.setattr(on_event, "SECONDS", 0.5 if command == "sleep 60" else 30.0)
    run(command, tmp_path, CLOSED)
    assert words in caplog.text


def test_campaign_runs_the_command(tmp_path: Path) -> None:
    result = tune_here(tmp_path / "runs", lambda x: x, settings={"on_event": KEEP}, evaluations=3, name="told")
    (end,) = [json.loads(line) for line in (result.folder / "got").read_text().splitlines()]
    assert (end["event"], end["campaign"]) == ("ended", result.folder.name)
