"""Events as lines of the operator's log, and for the command `on_event`."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from bbkb.orchestrator.campaign import events
from bbkb.orchestrator.campaign.events import Event, SessionClosed, SessionOutcome, StopReason, TrialFailed
from bbkb.orchestrator.campaign.policy import StopCause
from bbkb.orchestrator.campaign.settings import Budget, Settings
from bbkb.orchestrator.campaign.state import CampaignState
from bbkb.orchestrator.campaign.status import status_of
from bbkb.orchestrator.session import recorder
from bbkb.orchestrator.session.recorder import log_event
from bbkb.orchestrator.store.runs import Run
from bbkb.workers.messages import FailureKind
from tests.orchestrator.runs import tune_here

ENDED: dict[str, Any] = {"time": 9.0, "trial": 3, "attempt": 2, "started": 1.0, "finished": 5.0, "worker": "host:7"}
FAILED = events.TrialFailed(**ENDED, failure=FailureKind.TIMEOUT, message="no result", is_final=False)
STOPPED = events.TrialStopped(**ENDED, value=None, step=12)
PAUSED = events.TrialStopped(**ENDED, value=0.5, step=7, cause=StopCause.PAUSE)
ENDS = [
    (events.TrialSucceeded(**ENDED, value=0.5), "INFO", "succeeded after 4 s on host:7: 0.5"),
    (FAILED, "WARNING", "failed (timeout) after 4 s on host:7, it will be retried: no result"),
    (STOPPED, "INFO", "stopped early after 4 s on host:7, at step 12"),
    (PAUSED, "INFO", "paused after 4 s on host:7, at step 7: the strategy chooses which trials continue"),
]
AGAIN = 25
OPENED = events.SessionOpened(
    time=0.0, epoch=2, executor="ray", slots=4, settings=Settings(name="c", budget=Budget(evaluations=1))
)
CHOSEN = events.BatchChosen(time=0.0, round=1, picks=(), reason="limit", seconds=0.5, limit=4)
COMPLETED = events.TrialsContinued(time=0.0, trials=(AGAIN,), reason="finish")
CONTINUED = events.TrialsContinued(time=0.0, trials=(AGAIN, AGAIN), reason="promising")
STOP = events.StopRequested(time=0.0, reason=StopReason.TIME_SPENT)
FITTED = events.ModelRefreshed(time=0.0, round=2, trials=(1, 2), dictionary_size=5, record={}, seconds=0.1)
CLOSED = events.SessionClosed(time=0.0, outcome=SessionOutcome.FAILED, reason="why")
COURSE = [
    (OPENED, "INFO", "session 2 opened: ray, 4 workers"),
    (CHOSEN, "INFO", "after 1 refit, as many as were requested"),
    (COMPLETED, "INFO", "continued trial 25: to complete"),
    (CONTINUED, "INFO", "trials 25, 25: the strategy"),
    (FITTED, "INFO", "2 results, 5 inducing points"),
    (STOP, "INFO", "stop requested: time budget spent"),
    (CLOSED, "ERROR", "session closed, failed: why"),
]


@pytest.mark.parametrize(("event", "level", "words"), ENDS)
def test_event_line_of_an_attempts_end_names_trial_and_attempt(
    caplog: pytest.LogCaptureFixture, event: events.Event, level: str, words: str
) -> None:
    with caplog.at_level(logging.DEBUG, "bbkb"):
        log_event(event)
    (line,) = caplog.records
    assert (line.levelname, line.getMessage(), vars(line)["trial"], vars(line)["attempt"]) == (level, words, 3, 2)


def test_warning_names_the_parts_left_out_of_a_result(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "bbkb"):
        log_event(events.TrialSucceeded(**ENDED, value=0.5, remark="metrics left out: folds (list, not a number)"))
    _, line = caplog.records
    assert (line.levelname, line.getMessage()) == ("WARNING", "metrics left out: folds (list, not a number)")


@pytest.mark.parametrize(("event", "level", "words"), COURSE)
def test_event_lines_describe_the_course_of_a_session(
    caplog: pytest.LogCaptureFixture, event: events.Event, level: str, words: str
) -> None:
    with caplog.at_level(logging.INFO, "bbkb"):
        log_event(event)
    assert [line.levelname for line in caplog.records] == [level]
    assert words in caplog.text


def test_details_are_written_at_the_level_debug_only(caplog: pytest.LogCaptureFixture) -> None:
    dispatched = events.TrialsDispatched(time=0.0, attempts=((1, 1), (2, 1)))
    with caplog.at_level(logging.INFO, "bbkb"):
        log_event(dispatched)
        log_event(events.ComputingBegan(time=0.0, what="choosing"))
    assert caplog.records == []
    with caplog.at_level(logging.DEBUG, "bbkb"):
        log_event(dispatched)
    assert [vars(line)["trial"] for line in caplog.records] == [1, 2]


CLOSING = SessionClosed(time=2.0, outcome=SessionOutcome.FINISHED, reason="budget spent")
KEEP = "cat >> got; echo >> got"


def failed_trial() -> TrialFailed:
    attempt: dict[str, Any] = {"trial": 3, "attempt": 1, "started": 0.0, "finished": 1.0, "worker": "w"}
    return TrialFailed(time=1.0, failure=FailureKind.ERROR, message="no data", is_final=True, **attempt)


def run(command: str | None, folder: Path, *events: Event) -> list[dict[str, str]]:
    """The notices that the command has kept."""
    own = Run(folder, folder / "campaign.sqlite", "first")
    with recorder.user_command(command, own, lambda: status_of(CampaignState())) as take:
        for event in events:
            take(event)
    kept = folder / "got"
    return [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []


def test_command_hears_of_the_first_failure_and_the_end_once(tmp_path: Path) -> None:
    failure, end = run(KEEP, tmp_path, failed_trial(), failed_trial(), CLOSING)
    assert (failure["event"], end["event"]) == ("failure", "ended")
    assert failure["text"] == "bbkb campaign first: trial 3 failed (error): no data"
    assert end["text"].startswith("bbkb campaign first: finished: budget spent; ")
    assert end["run"] == str(tmp_path)


def test_notice_is_also_in_the_environment(tmp_path: Path) -> None:
    run('echo "$BBKB_EVENT $BBKB_CAMPAIGN $BBKB_RUN" > there', tmp_path, CLOSING)
    assert (tmp_path / "there").read_text() == f"ended first {tmp_path}\n"


def test_end_without_an_outcome_is_told_and_no_command_is_nothing(tmp_path: Path) -> None:
    (end,) = run(KEEP, tmp_path)
    assert "without an outcome" in end["text"]
    (tmp_path / "got").unlink()
    assert run(None, tmp_path, CLOSING) == []


@pytest.mark.parametrize(("command", "words"), [("echo no way >&2; exit 3", "exit code 3"), ("sleep 60", "Timeout")])
def test_failed_command_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, command: str, words: str
) -> None:
    monkeypatch.setattr(recorder, "_COMMAND_SECONDS", 0.5 if command == "sleep 60" else 30.0)
    run(command, tmp_path, CLOSING)
    assert words in caplog.text


def test_campaign_runs_the_command(tmp_path: Path) -> None:
    result = tune_here(tmp_path / "runs", lambda x: x, settings={"on_event": KEEP}, evaluations=3, name="told")
    (end,) = [json.loads(line) for line in (result.folder / "got").read_text().splitlines()]
    assert (end["event"], end["campaign"]) == ("ended", result.folder.name)
