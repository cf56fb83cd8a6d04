"""A campaign's event log folded into tables and totals: the only source of status, report, export
and the live page.

`History` has the `campaign.state.CampaignState` on which the run decides, and the tables that a
state of bounded size cannot have: trials, attempts, refreshes, sessions. All totals come from that
state, so `bbkb status` and the report cannot disagree. `verify` counts independently on purpose.

`advance` is the step, state and event to state, so following a growing log costs as much as its new
events. It changes the state it was given and returns it: a copy for each step would cost as much as
the whole log. Time is the executor's clock.
"""

import functools
import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

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
from orchestrator.campaign.training import stop_words
from orchestrator.campaign.transitions import apply_recorded, damage_error
from orchestrator.errors import BbkbError
from orchestrator.history.rows import AttemptRow, SessionRow, TrialRow, TrialStatus
from orchestrator.history.trace import Trace
from orchestrator.settings.from_log import RecordedSettings, read_recorded
from orchestrator.store.notes import Note


@dataclass(slots=True)
class History:
    """Tables and totals after `position` events. Built by `fold`, or `begin` and `advance`."""

    created: CampaignCreated
    settings: RecordedSettings  # of the newest session
    campaign: CampaignState  # all totals, as the run itself counts them
    position: int = 1
    existing: ExistingTaken | None = None  # results known before; they are no trials
    trials: list[TrialRow] = field(default_factory=list)
    succeeded: list[TrialRow] = field(default_factory=list)  # in the order in which their results arrived
    trace: Trace[TrialRow] = field(default_factory=Trace)  # the same, thinned for pictures
    running: set[int] = field(default_factory=set)  # trials
    reporting: dict[int, TrialRow] = field(default_factory=dict)  # the trials that reported intermediate values
    batches: list[BatchChosen] = field(default_factory=list)
    refreshes: list[ModelRefreshed] = field(default_factory=list)
    attempts: list[AttemptRow] = field(default_factory=list)
    appended: int = 0  # candidates that were added after the beginning
    sessions: list[SessionRow] = field(default_factory=list)
    notes: tuple[Note, ...] = ()  # in the order written; they are not in the log

    @property
    def tags(self) -> tuple[str, ...]:
        """The campaign's tags: those of its file and those that were added, each once."""
        added = (tag for note in self.notes if note.trial is None for tag in note.tags)
        return tuple(dict.fromkeys([*self.settings.tags, *added]))

    @property
    def is_asynchronous(self) -> bool:
        """Whether the strategy receives results as they come, not batch by batch."""
        return self.campaign.rules.is_asynchronous

    @property
    def is_maximized(self) -> bool:
        """Whether high values are good."""
        return self.campaign.rules.is_maximized

    @property
    def sign(self) -> float:
        """What turns a value into a reward, which is maximised."""
        return self.campaign.rules.sign

    @property
    def goals(self) -> CampaignGoals:
        """The objectives and constraints."""
        return self.campaign.rules.goals

    @property
    def front(self) -> list[TrialRow]:
        """The trials on the front of several objectives, in the order of their values, the best of
        the first one first; with one objective the best trial alone."""
        if len(self.goals.objectives) == 1:
            return [] if self.best is None else [self.best]
        return [self.trials[member.trial] for member in self.campaign.front.ordered]

    def worth(self, row: TrialRow) -> tuple[bool, float]:
        """Return what orders trials, the best last: whether the result may be feasible, then its
        reward."""
        return row.is_feasible is not False, self.sign * (row.value or 0.0)

    @property
    def is_virtual(self) -> bool:
        """Whether the executor's clock counts virtual seconds."""
        return bool(self.sessions) and self.sessions[-1].executor == "simulated"

    @property
    def best(self) -> TrialRow | None:
        """The trial with the best value, of the first objective where there are several, among
        those that satisfy all constraints; the earliest result of equals; None when there is
        none."""
        best = self.campaign.best
        return None if best is None or best.trial is None else self.trials[best.trial]

    @property
    def best_known(self) -> Best | None:
        """The best value of all, existing data included."""
        return self.campaign.best_known

    @property
    def recommended(self) -> Mapping[str, object] | None:
        """The parameters to take: those the strategy recommends where values are noisy, else those
        of the best value; None when nothing succeeded."""
        recommendation = self.campaign.refresh.recommended or self.best_known
        return None if recommendation is None else recommendation.parameters

    def copy(self) -> "History":
        """Return a copy that further steps do not change, but for rows of open trials."""
        return replace(
            self,
            trials=self.trials[:],
            succeeded=self.succeeded[:],
            trace=self.trace.copy(),
            running=self.running.copy(),
            reporting=self.reporting.copy(),
            batches=self.batches[:],
            refreshes=self.refreshes[:],
            attempts=self.attempts[:],
            sessions=[replace(session) for session in self.sessions],
        )

    @property
    def state(self) -> RunState:
        """The state of the run: that of its last session."""
        return self.sessions[-1].state if self.sessions else RunState.NOT_STARTED

    def status(self, now: float | None = None, activity: str = "") -> Status:
        """Return the status of the campaign, from `campaign.status.status_of`."""
        return status_of(self.created.name, self.campaign, now, activity)


def fold(events: Iterable[Event], stored: int = 0, state: CampaignState | None = None) -> History:
    """Fold a whole log. Raises ValueError when it does not begin with `CampaignCreated`.

    `state` is the fold of its first `stored` events, if that has been stored: applying them again
    takes half of the time.
    """
    iterator, history = _begin_log(events)
    if state is not None:
        for event in itertools.islice(iterator, max(0, stored - 1)):
            _record(history, event)
        history.campaign = state
    return functools.reduce(advance, iterator, history)


def fold_tables(events: Iterable[Event]) -> History:
    """Return the tables of a whole log without its totals: `campaign`, and what is computed from
    it, is that of the log's beginning.

    It takes half of the time of `fold`. Raises ValueError as `fold` does.
    """
    iterator, history = _begin_log(events)
    for event in iterator:
        _record(history, event)
    return history


def _begin_log(events: Iterable[Event]) -> tuple[Iterator[Event], History]:
    """Return the events after the first one, and the history after that."""
    iterator = iter(events)
    created = next(iterator, None)
    if not isinstance(created, CampaignCreated):
        raise ValueError("the log does not begin with the creation of a campaign: it is empty or not a log of bbkb")
    return iterator, begin(created)


def begin(created: CampaignCreated) -> History:
    """Return the history after the first event."""
    return History(created, read_recorded(created.settings), apply_recorded(CampaignState(), created))


def advance(history: History, event: Event) -> History:
    """Return `history` after one more event: the same object, changed."""
    history.campaign = apply_recorded(history.campaign, event)
    _record(history, event)
    return history


def _record(history: History, event: Event) -> None:
    """Update the tables by one more event. Raises StoreError for an event that cannot follow those
    before it."""
    try:
        _update(history, event)
    except (BbkbError, MemoryError):  # of recorded settings, or of this machine
        raise
    except Exception as error:
        raise damage_error(event, error) from error


def _update(history: History, event: Event) -> None:
    history.position += 1
    match event:
        case SessionOpened():
            _open(history, event)
        case BatchChosen():
            _choose(history, event)
        case TrialsDispatched():
            for trial, attempt in event.attempts:
                row = history.trials[trial]
                row.status, row.attempts, row.dispatched = "running", attempt, event.time
                history.running.add(trial)
        case TrialSucceeded() | TrialFailed() | TrialStopped():
            _end_attempt(history, event)
        case TrialsReopened():
            _mark(history, (reopened.trial for reopened in event.trials), "queued")
        case TrialsContinued():
            _continue(history, event)
        case CheckpointsRemoved():
            for trial in event.trials:
                history.trials[trial].has_no_checkpoint = True
        case PlacesChanged():
            _change_places(history.sessions[-1], event)
        case ReportsArrived():
            for trial, _attempt, step, value in event.reports:
                _take_reports(history, history.trials[trial], ((step, value),))
            for trial, step, metrics in event.metrics:
                history.trials[trial].begin_reports()
                history.trials[trial].report_metrics[step] = metrics
        case ExistingTaken():
            history.existing = event
        case ModelRefreshed():
            history.refreshes.append(event)
        case CandidatesGrown():
            history.appended += event.size
        case StopRequested() | CampaignCreated() | ComputingBegan():
            pass
        case SessionClosed():
            history.sessions[-1].state, history.sessions[-1].reason = RunState(event.outcome), event.reason
            _queue_running(history)  # a resume evaluates them again
    if history.sessions and not isinstance(event, TrialsReopened):
        history.sessions[-1].ended = max(history.sessions[-1].ended, event.time)


def _open(history: History, event: SessionOpened) -> None:
    _queue_running(history)
    _mark(history, event.adopted, "running")
    history.running.update(event.adopted)
    history.settings = read_recorded(event.settings)
    history.sessions.append(SessionRow(event.epoch, event.executor, event.slots, started=event.time, ended=event.time))


def _change_places(session: SessionRow, event: PlacesChanged) -> None:
    session.ended = max(session.ended, event.time)
    session.earlier_seconds, session.slots_since = session.worker_seconds, session.ended
    session.slots = event.slots


def _queue_running(history: History) -> None:
    _mark(history, history.running, "queued")
    history.running.clear()


def _mark(history: History, trials: Iterable[int], status: TrialStatus) -> None:
    for trial in trials:
        history.trials[trial].status = status


def _continue(history: History, event: TrialsContinued) -> None:
    """Stopped trials wait for their next attempts."""
    for continued in event.trials:
        row = history.trials[continued.trial]
        row.status, row.value, row.stopped_at, row.stop_cause = "queued", None, None, ""
        row.continuations += 1


def _choose(history: History, event: BatchChosen) -> None:
    history.batches.append(event)
    number = len(history.batches)
    history.trials.extend(TrialRow(pick, number, place) for place, pick in enumerate(event.picks, start=1))


def _take_reports(history: History, row: TrialRow, reports: Iterable[tuple[int, float]]) -> None:
    row.begin_reports()
    for step, value in reports:
        if row.continuations and len(row.reports) > 1 and step <= next(iter(row.reports)):
            row.has_restarted = True
        row.reports[step] = value
        row.report_metrics.pop(step, None)  # of an attempt before
    history.reporting.setdefault(row.trial, row)


def _end_attempt(history: History, event: AttemptEnded) -> None:
    row = history.trials[event.trial]
    history.running.discard(event.trial)
    row.started, row.finished, row.worker = event.started, event.finished, sys.intern(event.worker)
    failure, message = "", ""
    if isinstance(event, TrialSucceeded):
        row.status, row.value, row.metrics, row.error = "succeeded", event.value, event.metrics, ""
        if history.goals.constraints:
            row.is_feasible = history.goals.is_feasible(event.value, event.metrics)
        history.succeeded.append(row)
        history.trace.add(history.campaign.rules.sign * event.value, row, row.is_feasible is not False)
    elif isinstance(event, TrialStopped):
        row.status, row.value, row.stopped_at, row.stop_cause = "stopped", event.value, event.step, event.cause
        row.error = ""
    else:
        row.status = "failed" if event.is_final else "queued"
        failure, message = event.failure, event.message
        row.error = f"{failure}: {message}"
    if not isinstance(event, TrialFailed) and event.reports:
        _take_reports(history, row, event.reports)
        row.report_metrics.update(event.report_metrics)
    stop = stop_words(event.cause)[0] if isinstance(event, TrialStopped) else ""
    value = None if isinstance(event, TrialFailed) else event.value
    attempt = (event.trial, event.attempt, event.started, event.finished, row.worker, failure, message)
    history.attempts.append(AttemptRow(*attempt, stop, value))
