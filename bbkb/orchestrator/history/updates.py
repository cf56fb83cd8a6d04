"""Updates the tables of a campaign with the events of its log."""

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from bbkb.orchestrator.campaign import events
from bbkb.orchestrator.campaign.events import RunState
from bbkb.orchestrator.campaign.stops import stop_words
from bbkb.orchestrator.campaign.transitions import damage_error
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.history.rows import RESULT_FIELDS, AttemptRow, SessionRow, TrialRow, TrialStatus
from bbkb.orchestrator.history.tables import History
from bbkb.workers.messages import Report


def record(history: History, event: events.Event) -> None:
    """Update the tables with the next event.

    Raises StoreError if the event cannot follow the events before it.
    """
    try:
        history.position += 1
        if (update := _UPDATES.get(type(event))) is not None:
            update(history, event)
        if history.sessions and not isinstance(event, events.TrialsReopened):
            history.sessions[-1].extend(event.time)
    except (UserError, MemoryError):  # caused by the recorded settings or by this machine
        raise
    except Exception as error:
        raise damage_error(event, error) from error


def _open(history: History, event: events.SessionOpened) -> None:
    _queue_running(history)
    _mark(history, event.adopted, "running")
    history.settings = event.settings
    session = SessionRow(event.epoch, event.executor, event.slots, event.time, ended=event.time)
    history.sessions.append(session)


def _close(history: History, event: events.SessionClosed) -> None:
    session = history.sessions[-1]
    session.state = RunState(event.outcome)
    session.reason = event.reason
    _queue_running(history)  # a resume evaluates them again


def _change_slots(history: History, event: events.PlacesChanged) -> None:
    history.sessions[-1].extend(event.time)
    history.sessions[-1].slots = event.slots


def _queue_running(history: History) -> None:
    for row in history.trials:
        if row.status == "running":
            row.status = "queued"


def _mark(history: History, trials: Iterable[int], status: TrialStatus) -> None:
    for trial in trials:
        history.trials[trial].status = status


def _reopen(history: History, event: events.TrialsReopened) -> None:
    _mark(history, (trial.id for trial in event.trials), "queued")


def _choose(history: History, event: events.BatchChosen) -> None:
    history.batches.append(event)
    number = len(history.batches)
    rows = (TrialRow(pick, number, index) for index, pick in enumerate(event.picks, start=1))
    history.trials.extend(rows)
    _give_up(history, event.gives_up)


def _dispatch(history: History, event: events.TrialsDispatched) -> None:
    for trial, attempt in event.attempts:
        row = history.trials[trial]
        row.status = "running"
        row.attempts = attempt
        row.dispatched = event.time


def _continue(history: History, event: events.TrialsContinued) -> None:
    """Queue stopped trials for their next attempts."""
    for trial in event.trials:
        row = history.trials[trial]
        row.status = "queued"
        for name in RESULT_FIELDS:
            setattr(row, name, None)
        training = row.own_training()
        training.stopped_at = None
        training.stop_cause = ""
        training.continuations += 1


def _give_up(history: History, trials: Iterable[int]) -> None:
    for trial in trials:
        history.trials[trial].own_training().has_no_checkpoint = True


def _add_reports(history: History, reports: Iterable[Report]) -> None:
    first = history.goals.objectives[0].metric
    for report in reports:
        row = history.trials[report.trial]
        before = row.training.last_step
        metrics = dict(report.values)
        row.own_training().add(report.step, metrics.pop(first), metrics)
        history.trace.steps += row.training.last_step - before
        history.reporting.setdefault(row.trial, row)


def _succeed(history: History, event: events.TrialSucceeded) -> None:
    row = _end_attempt(history, event)
    row.status = "succeeded"
    row.error = ""
    row.is_feasible = history.goals.feasibility(event.value, event.metrics)
    history.succeeded.append(row)
    history.trace.add(history.sign * event.value, row, row.is_feasible is not False)


def _stop(history: History, event: events.TrialStopped) -> None:
    row = _end_attempt(history, event)
    row.status = "stopped"
    row.error = ""
    training = row.own_training()
    training.stopped_at = event.step
    training.stop_cause = event.cause


def _fail(history: History, event: events.TrialFailed) -> None:
    row = _end_attempt(history, event)
    row.status = "failed" if event.is_final else "queued"
    row.error = f"{event.failure}: {event.message}"


def _end_attempt(history: History, event: events.AttemptEnded) -> TrialRow:
    """Add the ended attempt to the table and its fields to the trial's row. Return the row."""
    row = history.trials[event.trial]
    row.started = event.started
    row.finished = event.finished
    row.worker = sys.intern(event.worker)
    attempt = AttemptRow(event.trial, event.attempt, event.started, event.finished, row.worker)
    match event:
        case events.TrialFailed():
            attempt = attempt._replace(failure=event.failure.value, message=event.message)
        case events.TrialStopped():
            row.value = event.value
            attempt = attempt._replace(stop=stop_words(event.cause)[0], value=event.value)
            _add_reports(history, event.reports)  # those that arrived with the end
        case events.TrialSucceeded():
            row.value = event.value
            row.metrics = event.metrics
            attempt = attempt._replace(value=event.value)
            _add_reports(history, event.reports)
    history.attempts.append(attempt)
    return row


def _keep_existing(history: History, event: events.ExistingTaken) -> None:
    history.existing = event


def _grow(history: History, event: events.CandidatesGrown) -> None:
    history.appended += event.size


# The tables do not show events of other types.
_UPDATES: Mapping[type[events.Event], Callable[[History, Any], None]] = {
    events.SessionOpened: _open,
    events.SessionClosed: _close,
    events.PlacesChanged: _change_slots,
    events.ExistingTaken: _keep_existing,
    events.BatchChosen: _choose,
    events.ModelRefreshed: lambda history, event: history.refreshes.append(event),
    events.CandidatesGrown: _grow,
    events.TrialsDispatched: _dispatch,
    events.TrialsReopened: _reopen,
    events.TrialsContinued: _continue,
    events.ReportsArrived: lambda history, event: _add_reports(history, event.reports),
    events.TrialSucceeded: _succeed,
    events.TrialStopped: _stop,
    events.TrialFailed: _fail,
    events.CheckpointsRemoved: lambda history, event: _give_up(history, event.trials),
}
