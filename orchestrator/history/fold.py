"""A campaign's event log folded into what people look at: trials, batches, refreshes, sessions.

Status, export and report all read this, so they cannot disagree. Time is the executor's clock.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from orchestrator.campaign.events import (
    AttemptEnded,
    BatchChosen,
    CampaignCreated,
    ComputingBegan,
    Event,
    ExistingTaken,
    ModelRefreshed,
    ReportsArrived,
    SessionClosed,
    SessionOpened,
    StopRequested,
    TrialFailed,
    TrialsDispatched,
    TrialStopped,
    TrialSucceeded,
)

TrialStatus = Literal["waiting", "running", "succeeded", "failed", "stopped"]


@dataclass(slots=True)
class TrialRow:
    """One trial as it stands at the end of the log. Times are None until known; `value` on the user's scale."""

    trial: int
    arm: int
    batch: int  # 1 for the first batch
    parameters: Mapping[str, Any]
    status: TrialStatus = "waiting"
    attempts: int = 0
    value: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    started: float | None = None
    finished: float | None = None
    worker: str = ""
    stopped_at: int | None = None  # the step at which the campaign stopped it early
    reports: list[tuple[int, float]] = field(default_factory=list)  # (step, value), of all its attempts
    error: str = ""  # "kind: message" of the last failure, also of one that was retried with success

    @property
    def seconds(self) -> float | None:
        """Duration of the last finished attempt."""
        return None if self.started is None or self.finished is None else self.finished - self.started


@dataclass(frozen=True, slots=True)
class Attempt:
    """A finished attempt, successful or not: one bar of the Gantt picture."""

    trial: int
    attempt: int
    started: float
    finished: float
    worker: str
    failure: str = ""  # its kind; empty for a success


@dataclass(frozen=True, slots=True)
class Session:
    """One process's time with the campaign. `ended` is the time of the last event seen in it."""

    epoch: int
    executor: str
    slots: int
    started: float
    ended: float
    outcome: str = "killed"  # unless it said otherwise: "finished", "failed", "interrupted"
    reason: str = ""

    @property
    def seconds(self) -> float:
        """Wall-clock (or virtual) length."""
        return self.ended - self.started


@dataclass(slots=True)
class History:
    """Everything people look at. Built by `fold`."""

    created: CampaignCreated
    settings: Mapping[str, Any]
    existing: ExistingTaken | None = None  # results known before; they are no trials
    trials: list[TrialRow] = field(default_factory=list)
    batches: list[BatchChosen] = field(default_factory=list)
    refreshes: list[ModelRefreshed] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    sessions: list[Session] = field(default_factory=list)
    idle_seconds: Mapping[str, float] = field(default_factory=dict)  # by cause, until the last session that was closed

    @property
    def is_asynchronous(self) -> bool:
        """Whether results are made known as they come, not batch by batch."""
        return bool(self.settings.get("strategy", {}).get("mode") == "async")

    @property
    def is_maximized(self) -> bool:
        """Whether high values are good."""
        return str(self.settings["objective"].get("direction", "maximize")) == "maximize"

    @property
    def succeeded(self) -> list[TrialRow]:
        """Trials with a value, in the order they finished."""
        rows = [row for row in self.trials if row.status == "succeeded"]
        return sorted(rows, key=lambda row: (row.finished or 0.0, row.trial))

    @property
    def best(self) -> TrialRow | None:
        """The trial with the best value; the earliest of equals; None when nothing succeeded."""
        sign = 1.0 if self.is_maximized else -1.0
        return max(self.succeeded, key=lambda row: sign * (row.value or 0.0), default=None)

    @property
    def failed_count(self) -> int:
        """Trials that failed for good."""
        return sum(row.status == "failed" for row in self.trials)

    @property
    def finished_count(self) -> int:
        """Trials that are over."""
        return sum(row.status in ("succeeded", "failed", "stopped") for row in self.trials)

    @property
    def elapsed_seconds(self) -> float:
        """Time in sessions; pauses between them do not count."""
        return sum(session.seconds for session in self.sessions)

    @property
    def utilization(self) -> float:
        """Share of the workers' time spent in evaluations that ended, in [0, 1]."""
        capacity = sum(session.slots * session.seconds for session in self.sessions)
        busy = sum(attempt.finished - attempt.started for attempt in self.attempts)
        return min(1.0, busy / capacity) if capacity > 0 else 0.0

    @property
    def least_seconds(self) -> float:
        """A lower bound on the time of what ended: its work spread evenly over all workers, or its longest attempt."""
        longest = max((attempt.finished - attempt.started for attempt in self.attempts), default=0.0)
        return min(self.elapsed_seconds, max(self.utilization * self.elapsed_seconds, longest))


def fold(events: Iterable[Event]) -> History:
    """Fold a whole log. Raises ValueError when it does not begin with `CampaignCreated`."""
    iterator = iter(events)
    created = next(iterator, None)
    if not isinstance(created, CampaignCreated):
        raise ValueError("the log does not begin with the creation of a campaign: it is empty or not one of ours")
    history = History(created=created, settings=created.settings)
    for event in iterator:
        _apply(history, event)
    return history


def _apply(history: History, event: Event) -> None:
    match event:
        case SessionOpened():
            history.settings = event.settings
            history.sessions.append(
                Session(event.epoch, event.executor, event.slots, started=event.time, ended=event.time)
            )
            for row in history.trials:
                if row.status == "running" and row.trial not in event.adopted:
                    row.status = "waiting"
        case BatchChosen():
            history.batches.append(event)
            history.trials.extend(
                TrialRow(pick.trial, pick.arm, len(history.batches), pick.parameters) for pick in event.picks
            )
        case TrialsDispatched():
            for trial, attempt in event.attempts:
                history.trials[trial].status = "running"
                history.trials[trial].attempts = attempt
        case TrialSucceeded() | TrialFailed() | TrialStopped():
            _apply_outcome(history, event)
        case ReportsArrived():
            for trial, _attempt, step, value in event.reports:
                history.trials[trial].reports.append((step, value))
        case ExistingTaken():
            history.existing = event
        case ModelRefreshed():
            history.refreshes.append(event)
        case StopRequested() | CampaignCreated() | ComputingBegan():
            pass
        case SessionClosed():
            _replace_last(history.sessions, outcome=event.outcome, reason=event.reason)
            history.idle_seconds = event.idle_seconds or history.idle_seconds
    if history.sessions and event.time > history.sessions[-1].ended:
        _replace_last(history.sessions, ended=event.time)


def _apply_outcome(history: History, event: AttemptEnded) -> None:
    row = history.trials[event.trial]
    row.started, row.finished, row.worker = event.started, event.finished, event.worker
    if isinstance(event, TrialSucceeded):
        row.status, row.value, row.metrics = "succeeded", event.value, event.metrics
    elif isinstance(event, TrialStopped):
        row.status, row.value, row.stopped_at = "stopped", event.value, event.step
    else:
        row.status = "failed" if event.is_final else "waiting"
        row.error = f"{event.failure}: {event.message}"
    if not isinstance(event, TrialFailed):
        row.reports += [report for report in event.reports if report not in row.reports]
    failure = event.failure if isinstance(event, TrialFailed) else ""
    history.attempts.append(Attempt(event.trial, event.attempt, event.started, event.finished, event.worker, failure))


def _replace_last(sessions: list[Session], **changes: Any) -> None:
    sessions[-1] = replace(sessions[-1], **changes)
