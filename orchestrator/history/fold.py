"""Folds a campaign's event log into tables and totals, the only source of status, report, export
and the live page.

`History` consists of the `campaign.state.CampaignState` that the run itself computes, and of tables
that a state of bounded size cannot hold: trials, attempts, refreshes and sessions. All totals come
from that state, so `bbkb status` and the report cannot disagree. `verify` counts independently on
purpose.

`advance` adds one event, so following a growing log costs only as much as its new events. It
modifies the history in place: copying the tables for each event would cost as much as the whole
log. Times are on the executor's clock.
"""

import functools
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from orchestrator.campaign.attempts import Best
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
from orchestrator.campaign.goals import CampaignGoals
from orchestrator.campaign.state import CampaignState
from orchestrator.campaign.status import Status, status_of
from orchestrator.campaign.trainings.rule import stop_words
from orchestrator.campaign.transitions import apply_recorded, damage_error
from orchestrator.errors import BbkbError
from orchestrator.history.rows import AttemptRow, SessionRow, TrialRow, TrialStatus
from orchestrator.history.trace import Trace
from orchestrator.settings.from_log import RecordedSettings, read_recorded
from orchestrator.store.notes import Note


@dataclass(slots=True)
class History:
    """Tables and totals after `position` events. Built by `fold`, or by `begin` and `advance`."""

    created: CampaignCreated
    settings: RecordedSettings  # of the newest session
    campaign: CampaignState  # all totals, as the run itself counts them
    position: int = 1
    existing: ExistingTaken | None = None  # results from before the campaign; they are not trials
    trials: list[TrialRow] = field(default_factory=list)
    succeeded: list[TrialRow] = field(default_factory=list)  # in the order of their results
    trace: Trace[TrialRow] = field(default_factory=Trace)  # the same, thinned for pictures
    reporting: dict[int, TrialRow] = field(default_factory=dict)  # trials with intermediate values
    batches: list[BatchChosen] = field(default_factory=list)
    refreshes: list[ModelRefreshed] = field(default_factory=list)
    attempts: list[AttemptRow] = field(default_factory=list)
    appended: int = 0  # the number of candidates that were added during the campaign
    sessions: list[SessionRow] = field(default_factory=list)
    notes: tuple[Note, ...] = ()  # in the order of writing; the log does not contain them

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of the campaign file and of the campaign's notes, without duplicates."""
        added = (tag for note in self.notes if note.trial is None for tag in note.tags)
        return tuple(dict.fromkeys([*self.settings.tags, *added]))

    @property
    def is_asynchronous(self) -> bool:
        """Whether the strategy receives results one by one instead of batch by batch."""
        return self.campaign.rules.strategy.is_asynchronous

    @property
    def is_maximized(self) -> bool:
        """Whether the first objective is maximized."""
        return self.campaign.rules.is_maximized

    @property
    def sign(self) -> float:
        """The factor (1 or -1) from a value to its reward, which is maximized."""
        return self.campaign.rules.sign

    @property
    def goals(self) -> CampaignGoals:
        """The objectives and constraints."""
        return self.campaign.rules.goals

    @property
    def front(self) -> list[TrialRow]:
        """The trials on the Pareto front, sorted from the best value of the first objective.

        With a single objective, only the best trial.
        """
        if len(self.goals.objectives) == 1:
            return [] if self.best is None else [self.best]
        return [self.trials[member.trial] for member in self.campaign.results.front.ordered]

    def worth(self, row: TrialRow) -> tuple[bool, float]:
        """Return a sort key for trials, the best last: feasible ones after infeasible ones, then
        by reward."""
        return row.is_feasible is not False, self.sign * (row.value or 0.0)

    @property
    def is_virtual(self) -> bool:
        """Whether the executor's clock counts virtual seconds."""
        return bool(self.sessions) and self.sessions[-1].executor == "simulated"

    @property
    def best(self) -> TrialRow | None:
        """The trial with the best value of the first objective that satisfies all constraints.

        The earliest result among equal values. None if no trial qualifies.
        """
        best = self.campaign.results.best
        return None if best is None or best.trial is None else self.trials[best.trial]

    @property
    def best_known(self) -> Best | None:
        """The best value among all results, including existing data."""
        return self.campaign.best_known

    @property
    def recommended(self) -> Mapping[str, object] | None:
        """The recommended parameters; None if no trial succeeded.

        They come from the strategy if the values are noisy, else from the best value.
        """
        recommendation = self.campaign.refresh.recommended or self.best_known
        return None if recommendation is None else recommendation.parameters

    def copy(self) -> "History":
        """Return a copy that later events do not change, except in the rows of open trials."""
        return replace(
            self,
            trials=self.trials[:],
            succeeded=self.succeeded[:],
            trace=self.trace.copy(),
            reporting=self.reporting.copy(),
            batches=self.batches[:],
            refreshes=self.refreshes[:],
            attempts=self.attempts[:],
            sessions=[replace(session) for session in self.sessions],
        )

    @property
    def state(self) -> RunState:
        """The state of the last session, which is the state of the run."""
        return self.sessions[-1].state if self.sessions else RunState.NOT_STARTED

    def status(self, now: float | None = None, activity: str = "") -> Status:
        """Return the status of the campaign, from `campaign.status.status_of`."""
        return status_of(self.created.name, self.campaign, now, activity)


def fold(events: Iterable[Event], stored: int = 0, state: CampaignState | None = None) -> History:
    """Fold a whole log. Raises ValueError if it does not begin with `CampaignCreated`.

    Args:
        events: all events of the log.
        stored: the number of events that `state` contains.
        state: the campaign's state from a snapshot, if there is one. It saves applying the first
            `stored` events again, which takes half of the time.
    """
    iterator, history = _begin_log(events)
    if state is not None:
        for event in itertools.islice(iterator, max(0, stored - 1)):
            _record(history, event)
        history.campaign = state
    return functools.reduce(advance, iterator, history)


def fold_tables(events: Iterable[Event]) -> History:
    """Return the tables of a whole log without totals, in half of the time of `fold`.

    `campaign`, and every property that is computed from it, stays at the log's first event. Raises
    ValueError as `fold` does.
    """
    iterator, history = _begin_log(events)
    for event in iterator:
        _record(history, event)
    return history


def _begin_log(events: Iterable[Event]) -> tuple[Iterator[Event], History]:
    """Return the events after the first one, and the history after the first one."""
    iterator = iter(events)
    created = next(iterator, None)
    if not isinstance(created, CampaignCreated):
        raise ValueError("the log does not begin with the creation of a campaign: it is empty or not a log of bbkb")
    return iterator, begin(created)


def begin(created: CampaignCreated) -> History:
    """Return the history after the first event."""
    return History(created, read_recorded(created.settings), apply_recorded(CampaignState(), created))


def advance(history: History, event: Event) -> History:
    """Add one event to `history`, in place, and return it."""
    history.campaign = apply_recorded(history.campaign, event)
    _record(history, event)
    return history


def _record(history: History, event: Event) -> None:
    """Update the tables by one more event.

    Raises StoreError if the event cannot follow the events before it.
    """
    try:
        history.position += 1
        _UPDATES[type(event)](history, event)
        if history.sessions and not isinstance(event, TrialsReopened):
            session = history.sessions[-1]
            session.ended = max(session.ended, event.time)
    except (BbkbError, MemoryError):  # of the recorded settings, or of this machine
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
    row.own_training().add(reports)
    history.reporting.setdefault(row.trial, row)


def _succeed(history: History, event: TrialSucceeded) -> None:
    row = _end_attempt(history, event)
    row.status = "succeeded"
    row.value = event.value
    row.metrics = event.metrics
    row.error = ""
    if history.goals.constraints:
        row.is_feasible = history.goals.is_feasible(event.value, event.metrics)
    history.succeeded.append(row)
    history.trace.add(history.sign * event.value, row, row.is_feasible is not False)
    _add_last_reports(history, row, event)
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
    """Return the trial's row with the times and the worker of the attempt that ended."""
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
