"""`bbkb.orchestrator.session.recorder`: The campaign's events as lines of the operator's log."""

import logging
from typing import Any

import pytest

from bbkb.orchestrator.campaign import events
from bbkb.orchestrator.campaign.events import SessionOutcome, StopReason
from bbkb.orchestrator.campaign.settings import Budget, Settings
from bbkb.orchestrator.campaign.stops import StopCause
from bbkb.orchestrator.session.recorder import log_event
from bbkb.workers.messages import FailureKind

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
