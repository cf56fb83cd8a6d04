"""Reads a campaign's event log and folds it into tables and totals, the only source of the status, the report,
the export and the live page.

`History` consists of the `campaign.state.CampaignState` that the run itself computes, and of tables
that a state of limited size cannot contain: trials, attempts, refreshes and sessions. All totals
come from that state, so `bbkb status` and the report cannot disagree. `verify` counts
independently, on purpose.

`advance` adds one event, so the cost of following a growing log depends only on its new events. It
modifies the history in place: copying the tables for each event would cost as much as the whole
log. Times are on the executor's clock.
"""

import functools
import itertools
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import attrgetter
from types import MappingProxyType
from typing import Generic, Literal, NamedTuple, TypeVar, cast

from bbkb.orchestrator.campaign import events
from bbkb.orchestrator.campaign.events import RunState, stop_words
from bbkb.orchestrator.campaign.goals import CampaignGoals
from bbkb.orchestrator.campaign.results import TrialResult, trial_result
from bbkb.orchestrator.campaign.settings import Settings
from bbkb.orchestrator.campaign.state import Best, CampaignState
from bbkb.orchestrator.campaign.status import Status, status_of
from bbkb.orchestrator.campaign.transitions import apply_recorded, damage_error
from bbkb.orchestrator.errors import UserError
from bbkb.orchestrator.store import snapshots
from bbkb.orchestrator.store.runs import Run
from bbkb.orchestrator.store.store import EventStore, without_collector

T = TypeVar("T")

TrialStatus = Literal["queued", "running", "succeeded", "failed", "stopped"]
ENDED: tuple[TrialStatus, ...] = ("succeeded", "failed", "stopped")


@dataclass(slots=True)
class TrainingRow:
    """The training of a trial that reports intermediate values."""

    reports: dict[int, float] = field(default_factory=dict)  # step → value, from the newest attempt
    metrics: dict[int, Mapping[str, float]] = field(default_factory=dict)  # step → further metrics
    last_step: int = 0  # the largest reported step in all attempts
    stopped_at: int | None = None  # the step at which the campaign stopped the trial early
    stop_cause: str = ""  # the reason, for display
    continuations: int = 0  # the number of continuations after a stop
    has_restarted: bool = False  # whether the trial then reported its first step again
    has_no_checkpoint: bool = False  # whether its checkpoint was removed after the stop

    def add(self, step: int, value: float, metrics: Mapping[str, float]) -> None:
        """Add a report. It replaces that of an earlier attempt."""
        if self.continuations and len(self.reports) > 1 and step <= next(iter(self.reports)):
            self.has_restarted = True
        self.reports[step] = value
        self.last_step = max(self.last_step, step)
        self.metrics.pop(step, None)
        if metrics:
            self.metrics[step] = metrics


# Shared by all trials without reports: a separate value would take an eighth of a row
_NO_TRAINING = TrainingRow(
    cast(dict[int, float], MappingProxyType({})),
    cast(dict[int, Mapping[str, float]], MappingProxyType({})),
)


@dataclass(slots=True)
class TrialRow:
    """A trial at the end of the log. Times are None until they are known. `value` is on the user's
    scale."""

    pick: events.PickedTrial  # the candidate, and the model's prediction at the time of choice
    batch: int  # 1 for the first batch
    place: int  # the index in its batch, from 1
    status: TrialStatus = "queued"
    attempts: int = 0
    value: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    dispatched: float | None = None  # the time at which the newest attempt was passed to a worker
    started: float | None = None
    finished: float | None = None
    worker: str = ""
    # read-only; `own_training` returns a modifiable one
    training: TrainingRow = field(default_factory=lambda: _NO_TRAINING)
    error: str = ""  # "kind: message" of the newest attempt's failure; empty if it did not fail
    is_feasible: bool | None = None  # None before the first result or without constraints

    @property
    def trial(self) -> int:
        """The trial's index, in the order of choice."""
        return self.pick.trial

    @property
    def arm(self) -> int:
        """The candidate's index."""
        return self.pick.arm

    @property
    def parameters(self) -> Mapping[str, object]:
        """The candidate's parameters."""
        return self.pick.parameters

    @property
    def seconds(self) -> float | None:
        """Duration of the newest finished attempt."""
        return None if self.started is None or self.finished is None else self.finished - self.started

    def own_training(self) -> TrainingRow:
        """Return the row's training for modification, after creating it if necessary."""
        if self.training is _NO_TRAINING:
            self.training = TrainingRow()
        return self.training


class AttemptRow(NamedTuple):
    """A finished attempt, successful or not: one bar of the Gantt chart."""

    trial: int
    attempt: int
    started: float
    finished: float
    worker: str
    failure: str = ""  # its kind; empty if the attempt did not fail
    message: str = ""
    stop: str = ""  # "paused" or "stopped early"; empty if the campaign did not stop it
    value: float | None = None  # the result, or the last report before the stop

    @property
    def ended(self) -> str:
        """The kind of the failure, "paused", "stopped early" or "succeeded"."""
        return self.failure or self.stop or "succeeded"


@dataclass(slots=True)
class SessionRow:
    """A session. `ended` is the time of its last event."""

    epoch: int
    executor: str
    slots: int
    started: float
    ended: float
    state: RunState = RunState.UNFINISHED  # until the log records the end of the session
    reason: str = ""
    worker_seconds: float = 0.0  # the sum over time of the number of slots

    def extend(self, time: float) -> None:
        """Extend the session to `time`, with the current number of slots."""
        self.worker_seconds += self.slots * max(0.0, time - self.ended)
        self.ended = max(self.ended, time)

    @property
    def seconds(self) -> float:
        """The duration on the wall clock, or in virtual time."""
        return self.ended - self.started


MOST_BUCKETS = 1000
_REWARD = attrgetter("reward")


@dataclass(frozen=True, slots=True)
class Point(Generic[T]):
    """A result in the order of arrival."""

    place: int  # its index in the order of arrival, from 1
    reward: float  # higher is better
    item: T  # the result itself
    steps: int = 0  # the steps that all trials had reported at that time


@dataclass(slots=True)
class Trace(Generic[T]):
    """A sample of `count` results in the order of arrival, for figures: at most 2 · `MOST_BUCKETS`, and
    every improvement.

    Each bucket covers consecutive results and contains the best and the worst of them. If there are
    too many buckets, neighboring buckets are merged. So adding a result takes constant time on
    average, and no outlier or improvement is lost.
    """

    count: int = 0
    steps: int = 0  # the steps that all trials have reported
    width: int = 1  # results per bucket
    improvements: list[Point[T]] = field(default_factory=list)
    # the worst and the best result in each bucket
    _buckets: list[tuple[Point[T], ...]] = field(default_factory=list)

    def add(self, reward: float, item: T, is_feasible: bool = True) -> None:
        """Add the next result. An infeasible result is not an improvement."""
        self.count += 1
        is_better = is_feasible and (not self.improvements or reward > self.improvements[-1].reward)
        is_in_last = len(self._buckets) * self.width >= self.count
        if not is_better and is_in_last and len(self._buckets[-1]) > 1:
            low, high = sorted(point.reward for point in self._buckets[-1])
            if low <= reward <= high:
                return  # most results of a long campaign are neither the worst nor the best of a bucket
        point = Point(self.count, reward, item, self.steps)
        if is_better:
            self.improvements.append(point)
        if not is_in_last:
            self._buckets.append((point,))
        else:
            self._buckets[-1] = _extremes((*self._buckets[-1], point))
        if len(self._buckets) > MOST_BUCKETS:
            self._buckets = [
                _extremes(self._buckets[first] + self._buckets[first + 1])
                if first + 1 < len(self._buckets)
                else self._buckets[first]
                for first in range(0, len(self._buckets), 2)
            ]
            self.width *= 2

    def copy(self) -> "Trace[T]":
        """Return an independent copy."""
        return Trace(self.count, self.steps, self.width, self.improvements[:], self._buckets[:])

    def points(self) -> Iterator[Point[T]]:
        """Yield the sampled points in the order of arrival."""
        for bucket in self._buckets:
            yield from bucket


def _extremes(points: tuple[Point[T], ...]) -> tuple[Point[T], ...]:
    worst = min(points, key=_REWARD)
    best = max(points, key=_REWARD)
    if worst is best:
        return (worst,)
    return (worst, best) if worst.place < best.place else (best, worst)


@dataclass(slots=True)
class History:
    """Tables and totals after `position` events. Built by `fold`, or by `begin` and `advance`."""

    created: events.CampaignCreated
    campaign: CampaignState  # all totals, as computed by the run itself
    position: int = 1
    existing: events.ExistingTaken | None = None  # results from before the campaign; they are not trials
    trials: list[TrialRow] = field(default_factory=list)
    succeeded: list[TrialRow] = field(default_factory=list)  # in the order of their results
    trace: Trace[TrialRow] = field(default_factory=Trace)  # a sample of the same, for figures
    reporting: dict[int, TrialRow] = field(default_factory=dict)  # trials with intermediate values
    batches: list[events.BatchChosen] = field(default_factory=list)
    refreshes: list[events.ModelRefreshed] = field(default_factory=list)
    attempts: list[AttemptRow] = field(default_factory=list)
    appended: int = 0  # the number of candidates appended during the campaign
    sessions: list[SessionRow] = field(default_factory=list)

    @property
    def settings(self) -> Settings:
        """The settings of the newest session."""
        return self.campaign.settings

    @property
    def listed(self) -> list[TrialRow]:
        """The trials for display: when the campaign has finished, without those that it never began."""
        if self.state is not RunState.FINISHED:
            return self.trials
        return [row for row in self.trials if row.attempts]

    @property
    def is_asynchronous(self) -> bool:
        """Whether the strategy receives results individually instead of in batches."""
        return self.settings.is_asynchronous

    @property
    def is_maximized(self) -> bool:
        """Whether the first objective is maximized."""
        return self.goals.objectives[0].is_maximized

    @property
    def sign(self) -> float:
        """The factor (1 or −1) that converts a value to its reward, which is maximized."""
        return self.goals.reward(1.0)

    @property
    def goals(self) -> CampaignGoals:
        """The objectives and constraints."""
        return self.settings.goals

    @property
    def front(self) -> list[TrialRow]:
        """The trials on the Pareto front, sorted by the first objective, the best first.

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
        return self.settings.workers.traits.in_virtual_time

    @property
    def best(self) -> TrialRow | None:
        """The trial with the best value of the first objective that satisfies all constraints.

        This is the earliest among equal values, and None if no trial qualifies.
        """
        best = self.campaign.results.best
        return None if best is None or best.trial is None else self.trials[best.trial]

    @property
    def best_known(self) -> Best | None:
        """The best value among all results, including existing data."""
        return self.campaign.best_known

    @property
    def recommended(self) -> Mapping[str, object] | None:
        """The recommended parameters; None if no trial has succeeded.

        If the values are noisy, the strategy recommends them; else they have the best value.
        """
        recommendation = self.campaign.refresh.recommended or self.best_known
        return None if recommendation is None else recommendation.parameters

    def copy(self) -> "History":
        """Return a copy that later events do not change, except for the rows of open trials."""
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

    def status(self, now: float | None = None) -> Status:
        """Return the status of the campaign, from `campaign.status.status_of`."""
        return status_of(self.campaign, now)


def fold(log: Iterable[events.Event], stored: int = 0, state: CampaignState | None = None) -> History:
    """Fold a whole log. Raises ValueError if it does not begin with `CampaignCreated`.

    Args:
        log: all events of the log.
        stored: the number of events that `state` contains.
        state: the campaign's state from a snapshot, if there is one. The first `stored` events then
            need not be applied again, which saves half of the time.
    """
    iterator = iter(log)
    created = next(iterator, None)
    if not isinstance(created, events.CampaignCreated):
        raise ValueError("the log does not begin with the creation of a campaign: it is empty or is not a bbkb log")
    history = begin(created)
    if state is not None:
        for event in itertools.islice(iterator, max(0, stored - 1)):
            _record(history, event)
        history.campaign = state
    return functools.reduce(advance, iterator, history)


def begin(created: events.CampaignCreated) -> History:
    """Return the history after the first event."""
    return History(created, apply_recorded(CampaignState(), created))


def advance(history: History, event: events.Event) -> History:
    """Add one event to `history`, in place, and return it."""
    history.campaign = apply_recorded(history.campaign, event)
    _record(history, event)
    return history


def _record(history: History, event: events.Event) -> None:
    """Update the tables. Raises StoreError if the event cannot follow the events before it."""
    try:
        history.position += 1
        _update(history, event)
        if history.sessions and not isinstance(event, events.TrialsReopened):
            history.sessions[-1].extend(event.time)
    except (UserError, MemoryError):  # caused by the recorded settings or by this machine
        raise
    except Exception as error:
        raise damage_error(event, error) from error


def _update(history: History, event: events.Event) -> None:
    trials = history.trials
    match event:
        case events.SessionOpened():
            _queue_running(history)
            for trial in event.adopted:
                trials[trial].status = "running"
            executor = event.settings.workers.executor
            history.sessions.append(SessionRow(event.epoch, executor, event.slots, event.time, ended=event.time))
        case events.SessionClosed():
            history.sessions[-1].state = RunState(event.outcome)
            history.sessions[-1].reason = event.reason
            _queue_running(history)  # a resume evaluates them again
        case events.PlacesChanged():
            history.sessions[-1].extend(event.time)
            history.sessions[-1].slots = event.slots
        case events.ExistingTaken():
            history.existing = event
        case events.BatchChosen():
            history.batches.append(event)
            number = len(history.batches)
            trials.extend(TrialRow(pick, number, place) for place, pick in enumerate(event.picks, start=1))
            _give_up(history, event.gives_up)
        case events.ModelRefreshed():
            history.refreshes.append(replace(event, observations=(), curves=None))
        case events.CandidatesGrown():
            history.appended += event.size
        case events.TrialsDispatched():
            for trial, attempt in event.attempts:
                row = trials[trial]
                row.status, row.attempts, row.dispatched = "running", attempt, event.time
        case events.TrialsReopened():
            for reopened in event.trials:
                trials[reopened.id].status = "queued"
        case events.TrialsContinued():
            for trial in event.trials:
                row = trials[trial]
                row.status, row.value = "queued", None  # it has no value until it ends again
                training = row.own_training()
                training.stopped_at, training.stop_cause = None, ""
                training.continuations += 1
        case events.ReportsArrived():
            _add_reports(history, event)
        case events.TrialSucceeded():
            row = _end_attempt(history, event, value=event.value)
            row.status, row.error, row.value, row.metrics = "succeeded", "", event.value, event.metrics
            _add_reports(history, event)  # those that arrived with the end
            row.is_feasible = history.goals.feasibility(event.value, event.metrics)
            history.succeeded.append(row)
            history.trace.add(history.sign * event.value, row, row.is_feasible is not False)
        case events.TrialStopped():
            row = _end_attempt(history, event, stop=stop_words(event.cause)[0], value=event.value)
            row.status, row.error, row.value = "stopped", "", event.value
            _add_reports(history, event)
            training = row.own_training()
            training.stopped_at, training.stop_cause = event.step, event.cause
        case events.TrialFailed():
            row = _end_attempt(history, event, failure=event.failure.value, message=event.message)
            row.status = "failed" if event.is_final else "queued"
            row.error = f"{event.failure}: {event.message}"
        case events.CheckpointsRemoved():
            _give_up(history, event.trials)
        case _:
            pass  # the tables do not show it


def _queue_running(history: History) -> None:
    for row in history.trials:
        if row.status == "running":
            row.status = "queued"


def _give_up(history: History, trials: Iterable[int]) -> None:
    for trial in trials:
        history.trials[trial].own_training().has_no_checkpoint = True


def _add_reports(history: History, event: events.ReportsArrived | events.TrialSucceeded | events.TrialStopped) -> None:
    first = history.goals.objectives[0].metric
    for report in event.reports:
        row = history.trials[report.trial]
        before = row.training.last_step
        metrics = dict(report.values)
        row.own_training().add(report.step, metrics.pop(first), metrics)
        history.trace.steps += row.training.last_step - before
        history.reporting.setdefault(row.trial, row)


def _end_attempt(
    history: History,
    event: events.AttemptEnded,
    *,
    failure: str = "",
    message: str = "",
    stop: str = "",
    value: float | None = None,
) -> TrialRow:
    """Add the ended attempt to the table and its times to the trial's row, which is returned."""
    row = history.trials[event.trial]
    row.started, row.finished, row.worker = event.started, event.finished, sys.intern(event.worker)
    times = (event.trial, event.attempt, event.started, event.finished, row.worker)
    history.attempts.append(AttemptRow(*times, failure, message, stop, value))
    return row


def ended_trial(event: events.Event, state: CampaignState) -> TrialResult | None:
    """Return the trial that ended with `event`, the next after `state`, for users' code; None if none did."""
    metrics: Mapping[str, float] = {}
    value: float | None = None
    error = ""
    match event:
        case events.TrialSucceeded():
            status, value, metrics = "succeeded", event.value, event.metrics
        case events.TrialStopped():
            status, value = "stopped", event.value
        case events.TrialFailed(is_final=True):
            status, error = "failed", f"{event.failure}: {event.message}"
        case _:
            return None
    parameters = state.running[event.trial].trial.parameters
    seconds = event.finished - event.started
    return trial_result(state.settings, event.trial, parameters, status, value, metrics, seconds, error)


def read_history(run: Run) -> History:
    """Return the run's history.

    Raises RunError if the run has no log, and StoreError if the log cannot be read.
    """
    with run.store() as store, without_collector():
        created, events = run.stream(store)
        position, state = snapshots.load(store, run.name)
        # one event at a time, because a list of all events would double the memory
        return fold(chain((created,), events), position, state if position else None)


@dataclass(frozen=True, slots=True)
class Overview:
    """A run in a list of runs."""

    began: float  # seconds since 1970
    state: RunState
    status: Status
    best: str
    tags: tuple[str, ...]
    strategy: str


def read_overview(run: Run, store: EventStore) -> Overview:
    """Return the overview of a run from its open store: from the newest snapshot and the events after
    it, so a long log takes no longer than a short one. Raises as `read_history` does."""
    state = snapshots.current(run, store)
    session, settings = state.session, state.settings
    best = "" if state.best_known is None else f"{state.best_known.value:.6g}"
    return Overview(
        began=state.clock.created,
        state=RunState(session.outcome or (RunState.UNFINISHED if session.epoch else RunState.NOT_STARTED)),
        status=status_of(state),
        best=f"front of {len(state.results.front.ordered)}" if len(settings.goals.objectives) > 1 else best,
        tags=settings.tags,
        strategy=settings.strategy["name"],
    )
