"""Updates the tables of a campaign with the events of its log."""

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from orchestrator.campaign.endings import RunState
from orchestrator.campaign.events import (
    AttemptEnded,
    BatchChosen,
    CampaignCreated,
    CandidatesGrown,
    CheckpointsRemoved,
    ComputingBegan,
    Event,
    ExistingTaken,
    ModelRefreshed,
    PlacesChanged,
    ReportsArrived,
    SessionClosed,
    SessionOpened,
    StopRequested,
    TrialFailed,
    TrialsContinued,
    TrialsDispatched,
    TrialsReopened,
    TrialStopped,
    TrialSucceeded,
)
from orchestrator.campaign.trainings.rule import stop_words
from orchestrator.campaign.transitions import damage_error
from orchestrator.errors import UserError
from orchestrator.history.rows import AttemptRow, SessionRow, TrialRow, TrialStatus
from orchestrator.history.tables import History
from orchestrator.settings.from_log import read_recorded


def record(history: History, event: Event) -> None:
    """Update the tables with the next event.

    Raises StoreError if the event cannot follow the events before it.
    """
    try:
        history.position += 1
        _UPDATES[type(event)](history, event)
        if history.sessions and not isinstance(event, TrialsReopened):
            session = history.sessions[-1]
            session.ended = max(session.ended, event.time)
    except (UserError, MemoryError):  # caused by the recorded settings or by this machine
        raise
    except Exception as error:
        raise damage_error(event, error) from error


def _open(history: History, event: SessionOpened) -> None:
    _queue_running(history)
    _mark(history, event.adopted, "running")
    history.settings = read_recorded(event.settings)
    session = SessionRow(event.epoch, event.executor, event.slots, event.time, ended=event.time)
    history.sessions.append(session)


def _close(history: History, event: SessionClosed) -> None:
    session = history.sessions[-1]
    session.state = RunState(event.outcome)
    session.reason = event.reason
    _queue_running(history)  # a resume evaluates them again


def _change_places(history: History, event: PlacesChanged) -> None:
    history.sessions[-1].change_slots(event.slots, event.time)


def _queue_running(history: History) -> None:
    for row in history.trials:
        if row.status == "running":
            row.status = "queued"


def _mark(history: History, trials: Iterable[int], status: TrialStatus) -> None:
    for trial in trials:
        history.trials[trial].status = status


def _reopen(history: History, event: TrialsReopened) -> None:
    _mark(history, (reopened.trial for reopened in event.trials), "queued")


def _choose(history: History, event: BatchChosen) -> None:
    history.batches.append(event)
    number = len(history.batches)
    rows = (TrialRow(pick, number, index) for index, pick in enumerate(event.picks, start=1))
    history.trials.extend(rows)


def _dispatch(history: History, event: TrialsDispatched) -> None:
    for trial, attempt in event.attempts:
        row = history.trials[trial]
        row.status = "running"
        row.attempts = attempt
        row.dispatched = event.time


def _continue(history: History, event: TrialsContinued) -> None:
    """Queue stopped trials for their next attempts."""
    for continued in event.trials:
        row = history.trials[continued.trial]
        row.status = "queued"
        row.value = None
        training = row.own_training()
        training.stopped_at = None
        training.stop_cause = ""
        training.continuations += 1


def _remove_checkpoints(history: History, event: CheckpointsRemoved) -> None:
    for trial in event.trials:
        history.trials[trial].own_training().has_no_checkpoint = True


def _report(history: History, event: ReportsArrived) -> None:
    for trial, _attempt, step, value in event.reports:
        _add_reports(history, history.trials[trial], ((step, value),))
    for trial, step, metrics in event.metrics:
        history.trials[trial].own_training().metrics[step] = metrics


def _add_reports(history: History, row: TrialRow, reports: Iterable[tuple[int, float]]) -> None:
    before = row.training.last_step
    row.own_training().add(reports)
    history.trace.steps += row.training.last_step - before
    history.reporting.setdefault(row.trial, row)


def _succeed(history: History, event: TrialSucceeded) -> None:
    row = _end_attempt(history, event)
    row.status = "succeeded"
    row.value = event.value
    row.metrics = event.metrics
    row.error = ""
    if history.goals.constraints:
        row.is_feasible = history.goals.is_feasible(event.value, event.metrics)
    _add_last_reports(history, row, event)
    history.succeeded.append(row)
    history.trace.add(history.sign * event.value, row, row.is_feasible is not False)
    _add_attempt(history, event, value=event.value)


def _stop(history: History, event: TrialStopped) -> None:
    row = _end_attempt(history, event)
    row.status = "stopped"
    row.value = event.value
    row.error = ""
    training = row.own_training()
    training.stopped_at = event.step
    training.stop_cause = event.cause
    _add_last_reports(history, row, event)
    _add_attempt(history, event, stop=stop_words(event.cause)[0], value=event.value)


def _fail(history: History, event: TrialFailed) -> None:
    row = _end_attempt(history, event)
    row.status = "failed" if event.is_final else "queued"
    row.error = f"{event.failure}: {event.message}"
    _add_attempt(history, event, failure=event.failure, message=event.message)


def _end_attempt(history: History, event: AttemptEnded) -> TrialRow:
    """Return the trial's row after adding the times and the worker of the ended attempt."""
    row = history.trials[event.trial]
    row.started = event.started
    row.finished = event.finished
    row.worker = sys.intern(event.worker)
    return row


def _add_last_reports(
    history: History,
    row: TrialRow,
    event: TrialSucceeded | TrialStopped,
) -> None:
    """Add the reports that reached the log together with the attempt's end."""
    if event.reports:
        _add_reports(history, row, event.reports)
        row.own_training().metrics.update(event.report_metrics)


def _add_attempt(
    history: History,
    event: AttemptEnded,
    *,
    failure: str = "",
    message: str = "",
    stop: str = "",
    value: float | None = None,
) -> None:
    worker = history.trials[event.trial].worker
    times = (event.started, event.finished)
    attempt = AttemptRow(event.trial, event.attempt, *times, worker, failure, message, stop, value)
    history.attempts.append(attempt)


def _keep_existing(history: History, event: ExistingTaken) -> None:
    history.existing = event


def _refresh(history: History, event: ModelRefreshed) -> None:
    history.refreshes.append(event)


def _grow(history: History, event: CandidatesGrown) -> None:
    history.appended += event.size


def _change_nothing(history: History, event: Event) -> None:
    """The tables do not show these events."""


_UPDATES: Mapping[type[Event], Callable[[History, Any], None]] = {
    CampaignCreated: _change_nothing,
    SessionOpened: _open,
    SessionClosed: _close,
    StopRequested: _change_nothing,
    PlacesChanged: _change_places,
    ExistingTaken: _keep_existing,
    ComputingBegan: _change_nothing,
    BatchChosen: _choose,
    ModelRefreshed: _refresh,
    CandidatesGrown: _grow,
    TrialsDispatched: _dispatch,
    TrialsReopened: _reopen,
    TrialsContinued: _continue,
    ReportsArrived: _report,
    TrialSucceeded: _succeed,
    TrialStopped: _stop,
    TrialFailed: _fail,
    CheckpointsRemoved: _remove_checkpoints,
}
