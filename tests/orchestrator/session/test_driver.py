"""The loop of a session, and what it records."""

import itertools
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from bbkb.orchestrator.campaign import events
from bbkb.orchestrator.campaign.events import (
    Event,
    RunState,
    SessionClosed,
    SessionOutcome,
    StopCause,
    StopReason,
    TrialFailed,
    TrialSucceeded,
)
from bbkb.orchestrator.campaign.policy import Close
from bbkb.orchestrator.campaign.settings import Budget, Settings
from bbkb.orchestrator.campaign.state import CampaignState
from bbkb.orchestrator.campaign.status import Status, status_of
from bbkb.orchestrator.engine.engine import replay
from bbkb.orchestrator.errors import CampaignError, FencedError, StoreError
from bbkb.orchestrator.history.fold import fold
from bbkb.orchestrator.session import recorder
from bbkb.orchestrator.session.driver import Driver
from bbkb.orchestrator.session.recorder import Recorder, log_event
from bbkb.orchestrator.store.runs import Run
from bbkb.orchestrator.store.store import Writer
from bbkb.workers.executor import Executor
from bbkb.workers.messages import FailureKind
from tests.examples import spread
from tests.executors import HERE, executor_here
from tests.orchestrator.fakes import STARTING, Campaign, Killed, Parabola, campaign_with_existing
from tests.orchestrator.runs import tune_here


@pytest.mark.parametrize("kind", HERE)
def test_campaign_ends_with_every_trial_evaluated_once(tmp_path: Path, kind: str) -> None:
    campaign = Campaign(tmp_path)
    close = campaign.run(executor_here(kind, campaign.objective))
    assert close == Close(SessionOutcome.FINISHED, "budget spent")
    succeeded = [event.trial for event in campaign.events() if isinstance(event, TrialSucceeded)]
    assert sorted(succeeded) == list(range(30))


def test_bbkb_finds_the_top_of_a_parabola(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, evaluations=60)
    campaign.run(campaign.simulated_executor())
    best = fold(campaign.events()).best
    assert best is not None
    assert abs(cast(float, best.parameters["x"]) - 0.3) < 0.1


def test_duplicate_result_is_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    campaign = Campaign(tmp_path, evaluations=10)
    executor = campaign.simulated_executor()
    single = executor.next_outcomes
    monkeypatch.setattr(executor, "next_outcomes", lambda timeout: 2 * single(timeout))
    assert campaign.run(executor).outcome == "finished"
    history = fold(campaign.events())
    assert len(history.attempts) == history.status().trials.done == 10


def test_clean_stop_lets_running_evaluations_end(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)
    executor = campaign.simulated_executor()
    driver: Driver = campaign.driver(executor, lambda status: driver.stop() if status.trials.succeeded == 5 else None)
    assert driver.run(campaign.session_event(executor)).outcome == "interrupted"
    rows = fold(campaign.events()).trials
    assert not any(row.status == "running" for row in rows)


def test_immediate_stop_leaves_running_evaluations_to_the_next_session(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)
    executor = campaign.simulated_executor()
    driver: Driver = campaign.driver(
        executor, lambda status: driver.stop(now=True) if status.trials.succeeded == 5 else None
    )
    close = driver.run(campaign.session_event(executor))
    assert "were cancelled" in close.reason
    assert campaign.run(campaign.simulated_executor()) == Close(SessionOutcome.FINISHED, "budget spent")
    assert fold(campaign.events()).status().trials.done == 30


def test_failing_arms_are_set_aside_and_the_campaign_continues(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, evaluations=40, objective=Parabola(breaks_below=0.2))
    assert campaign.run(campaign.simulated_executor()).outcome == "finished"
    history = fold(campaign.events())
    failed = [row for row in history.trials if row.status == "failed"]
    assert failed
    assert all(row.attempts == 2 for row in failed)
    assert all("RuntimeError: too small" in row.error for row in failed)
    batches_after = {row.arm: row.batch for row in failed}
    assert not [row for row in history.trials if row.arm in batches_after and row.batch > batches_after[row.arm]]


def test_campaign_ends_soon_with_the_reason_if_everything_fails(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, evaluations=101, objective=Parabola(breaks_below=2.0))
    close = campaign.run(campaign.simulated_executor())
    assert close.outcome == "failed"
    assert "RuntimeError: too small" in close.reason
    assert len(fold(campaign.events()).trials) < 20


def test_strategy_that_breaks_is_reported_and_nothing_finished_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = Campaign(tmp_path)
    executor = campaign.simulated_executor()
    driver = campaign.driver(executor)

    def raise_error(*arguments: Any) -> Any:
        raise ArithmeticError("no such number")

    monkeypatch.setattr(type(campaign.problem.strategy), "tell", raise_error)
    with pytest.raises(CampaignError, match="ArithmeticError in refitting the model: no such number"):
        driver.run(campaign.session_event(executor))
    events = campaign.events()
    assert isinstance(events[-1], SessionClosed)
    assert fold(events).status().trials.done > 0


@pytest.mark.parametrize(("strategy", "direction"), spread(STARTING, ["maximize", "minimize"]))
def test_campaign_with_existing_data_chooses_by_a_posterior_that_contains_them(
    tmp_path: Path, strategy: str, direction: str
) -> None:
    campaign = campaign_with_existing(tmp_path, strategy, direction)
    campaign.run(campaign.simulated_executor())
    history = fold(campaign.events())
    first = history.batches[0].picks[0]
    # the parabola falls to both sides: the best known value is at the top if maximized, at an end
    # if minimized
    assert (abs(cast(float, first.parameters["x"]) - 0.6) < 0.2) == (direction == "maximize")
    assert len(history.trials) == 12
    assert history.existing is not None
    assert (history.refreshes[0].trials, history.refreshes[0].round) == ((), 1)


def test_result_is_stored_before_anything_acts_on_it(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, slots=1, evaluations=8)
    inner = campaign.simulated_executor()
    stored_when_submitting: list[int] = []

    class Watched:
        slots = 1
        handed_out = acknowledged = 0

        def submit(self, trials: Sequence[Any]) -> None:
            stored = sum(isinstance(event, TrialSucceeded) for event in campaign.events())
            stored_when_submitting.append(stored)
            assert stored == self.handed_out == self.acknowledged
            inner.submit(trials)

        def next_outcomes(self, timeout: float | None) -> list[Any]:
            outcomes = inner.next_outcomes(timeout)
            self.handed_out += len(outcomes)
            return outcomes

        def acknowledge(self, attempts: Any) -> None:
            self.acknowledged += len(attempts)

        def __getattr__(self, name: str) -> Any:
            return getattr(inner, name)

    campaign.run(cast(Executor, Watched()))
    assert stored_when_submitting == list(range(8))


def test_writer_that_was_fenced_off_stops_without_writing(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path)
    executor = campaign.simulated_executor()

    def take_over(status: Status) -> None:
        if status.trials.succeeded == 3:
            campaign.store.claim("c", "a usurper")

    with pytest.raises(FencedError, match="a usurper"):
        campaign.driver(executor, take_over).run(campaign.session_event(executor))
    assert fold(campaign.events()).state == RunState.UNFINISHED


def fail_appends(monkeypatch: pytest.MonkeyPatch, calls: range, error: StoreError) -> None:
    """Make the appends with these numbers fail."""
    append, numbers = Writer.append, itertools.count()

    def append_or_fail(self: Writer, events: Any, position: int | None = None) -> None:
        if next(numbers) in calls:
            raise error
        append(self, events, position)

    monkeypatch.setattr(Writer, "append", append_or_fail)
    monkeypatch.setattr("bbkb.orchestrator.session.recorder._STORE_RETRY_SECONDS", 0.001)


def test_driver_retries_while_the_store_is_unreachable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    campaign = Campaign(tmp_path)
    fail_appends(monkeypatch, range(3, 6), StoreError("the server restarts", is_transient=True))
    assert campaign.run(campaign.simulated_executor()) == Close(SessionOutcome.FINISHED, "budget spent")
    assert len(fold(campaign.events()).succeeded) == 30


@pytest.mark.parametrize("is_transient", [True, False])
def test_session_ends_if_the_store_stays_unreachable_and_leaves_evaluations_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_transient: bool
) -> None:
    campaign = Campaign(tmp_path)
    executor = campaign.simulated_executor()
    closed: list[Any] = []
    with monkeypatch.context() as patched:
        fail_appends(patched, range(5, 10**6), StoreError("the disk is full", is_transient))
        patched.setattr("bbkb.orchestrator.session.recorder.STORE_PATIENCE_SECONDS", 0.01)
        patched.setattr(executor, "close", closed.append)
        with pytest.raises(StoreError, match="the disk is full"):
            campaign.run(executor)
    assert closed == [True]
    assert campaign.run(campaign.simulated_executor()) == Close(SessionOutcome.FINISHED, "budget spent")


def test_interrupt_just_after_a_transaction_writes_nothing_twice(tmp_path: Path, monkeypatch: Any) -> None:
    campaign, calls = Campaign(tmp_path), itertools.count()
    append = Writer.append

    def append_and_interrupt(self: Writer, events: Any, position: int | None = None) -> None:
        append(self, events, position)
        if next(calls) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(Writer, "append", append_and_interrupt)
    assert campaign.run(campaign.simulated_executor()).outcome == "interrupted"
    assert next(calls) == 6  # the end of the session was written after the interrupt
    events = campaign.events()
    assert len({repr(event) for event in events}) == len(events)
    assert campaign.run(campaign.simulated_executor()) == Close(SessionOutcome.FINISHED, "budget spent")
    succeeded = [event.trial for event in campaign.events() if isinstance(event, TrialSucceeded)]
    assert sorted(succeeded) == list(range(30))


def test_interrupt_at_the_end_keeps_the_recorded_outcome(tmp_path: Path, monkeypatch: Any) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Recorder, "save_snapshot", interrupt)
    campaign = Campaign(tmp_path)
    assert campaign.run(campaign.simulated_executor()) == Close(SessionOutcome.FINISHED, "budget spent")
    assert [event.kind for event in campaign.events()].count("session_closed") == 1


def test_error_at_the_end_does_not_end_the_session_twice(tmp_path: Path, monkeypatch: Any) -> None:
    def fail(*_: object) -> None:
        raise RecursionError

    monkeypatch.setattr(Recorder, "save_snapshot", fail)
    campaign = Campaign(tmp_path)
    with pytest.raises(CampaignError, match="RecursionError"):
        campaign.run(campaign.simulated_executor())
    assert [event.kind for event in campaign.events()].count("session_closed") == 1


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[int, float | None]]:
    """The arms and values of a campaign that is not killed."""
    campaign = Campaign(tmp_path_factory.mktemp("undisturbed"))
    campaign.run(campaign.simulated_executor())
    return [(row.arm, row.value) for row in fold(campaign.events()).trials]


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (2, 3, 4))])
def test_campaign_killed_repeatedly_makes_the_decisions_of_an_undisturbed_one(
    tmp_path: Path, undisturbed: list[tuple[int, float | None]], seed: int
) -> None:
    campaign = Campaign(tmp_path)
    chance = np.random.default_rng(seed)
    close, kills = None, 0
    while close is None:
        lives = int(chance.integers(1, 15))

        def observe(status: Status) -> None:
            nonlocal lives
            lives -= 1
            if lives == 0:
                raise Killed

        executor = campaign.simulated_executor()
        try:
            close = campaign.driver(executor, observe).run(campaign.session_event(executor))
        except Killed:
            kills += 1
    assert kills > 3
    assert [(row.arm, row.value) for row in fold(campaign.events()).trials] == undisturbed


@pytest.mark.parametrize("strategy", STARTING)
def test_existing_data_are_learned_once_and_a_replay_gives_the_live_state(tmp_path: Path, strategy: str) -> None:
    campaign = campaign_with_existing(tmp_path, strategy)
    executor = campaign.simulated_executor()
    driver = campaign.driver(executor)
    driver.run(campaign.session_event(executor))
    again = replay(campaign.problem, campaign.events())
    live = driver.recorder.engine
    assert (again.state, again.model) == (live.state, live.model)
    assert live.model.pulls.total == 80 + 12


def test_campaign_killed_before_it_learned_existing_data_learns_them_on_resume(tmp_path: Path) -> None:
    campaign = campaign_with_existing(tmp_path, "bbkb")

    def kill(status: Status) -> None:
        raise Killed

    executor = campaign.simulated_executor()
    with pytest.raises(Killed):
        campaign.driver(executor, kill).run(campaign.session_event(executor))
    assert not fold(campaign.events()).refreshes  # the refresh was not committed yet
    assert campaign.run(campaign.simulated_executor()) == Close(SessionOutcome.FINISHED, "budget spent")
    (tmp_path / "undisturbed").mkdir()
    undisturbed = campaign_with_existing(tmp_path / "undisturbed", "bbkb")
    undisturbed.run(undisturbed.simulated_executor())
    ours, theirs = (fold(log.events()) for log in (campaign, undisturbed))
    assert [row.arm for row in ours.trials] == [row.arm for row in theirs.trials]


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
OPENED = events.SessionOpened(time=0.0, epoch=2, slots=4, settings=Settings(name="c", budget=Budget(evaluations=1)))
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
