"""The time of a campaign and of its workers. All times are on the executor's clock."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from bbkb.orchestrator.campaign.draft import Section, section

Cause = Literal["start_up", "drift_budget", "batch_end", "refit", "campaign_end", "dispatch"]

LABELS = {
    "start_up": "start-up",  # until the first evaluation of a session was dispatched
    "drift_budget": "the strategy waits for results",  # it allows no further pull before
    "batch_end": "end of a batch",  # waiting for the other trials of a batch, in batch mode
    "refit": "waiting for the strategy",  # it was computing, and the backlog was empty
    "campaign_end": "end of campaign",  # nothing was left to dispatch
    "dispatch": "dispatch",  # the driver was busy with other work
    "worker_start": "starting workers",  # the trial waited for its worker process to start
    "sending": "sending trials",  # the trial was on its way to a worker
    "recording": "recording and deciding",  # the driver recorded the outcome, or decided
    "other": "other",
}
# a trial that waits longer than this is assumed to wait for a worker process to start
_PROCESS_START_SECONDS = 0.5
_RECENT = 1 / 32  # weight of the newest interval in the mean time between two outcomes


def plus(known: Mapping[str, float], cause: str, seconds: float) -> Mapping[str, float]:
    """Add seconds. They do not count if they are below 0, as between two machines' clocks."""
    seconds = max(0.0, seconds)
    return {**known, cause: known.get(cause, 0.0) + seconds} if seconds else known


@section
class Clock(Section):
    """The time in sessions, without the pauses between them, and its use by the workers."""

    created: float = 0.0  # the time of the first event
    last_time: float = 0.0  # the time of the last event
    opened: float = 0.0  # when the newest session opened
    elapsed_seconds: float = 0.0
    capacity_seconds: float = 0.0  # the sum over time of the number of workers; at least busy + idle
    busy_seconds: float = 0.0  # the total time of attempts that have ended, whatever their outcome
    # of the strategy since the last outcome, while a dispatched trial waited; None unless the
    # driver's thread evaluates, because evaluations otherwise continue during computations
    computing_seconds: float | None = None
    # worker-seconds by cause (`LABELS`): without an attempt, and of attempts outside an evaluation
    idle: Mapping[str, float] = field(default_factory=dict)
    transit: Mapping[str, float] = field(default_factory=dict)

    def since(self, now: float) -> float:
        """Return the seconds since the last event."""
        return max(0.0, now - self.last_time)

    def end_attempt(self, waited_from: float, started: float, finished: float) -> None:
        """Add an attempt whose outcome has just been recorded.

        `waited_from`: when the attempt was dispatched, or its worker became free if that was later.
        """
        if finished <= started:
            return
        before = started - max(waited_from, self.opened)
        computing = max(0.0, min(before, self.computing_seconds or 0.0))
        waited = before - computing
        cause = "worker_start" if waited > _PROCESS_START_SECONDS else "sending"
        if self.computing_seconds is not None:  # the driver's thread evaluates
            cause = "recording"
            self.computing_seconds = 0.0
        self.busy_seconds = self.busy_seconds + finished - started
        self.idle = plus(self.idle, "refit", computing)
        transit = plus(self.transit, cause, waited)
        self.transit = plus(transit, "recording", self.last_time - max(finished, self.opened))

    def advance(self, time: float, slots: int, free: int, cause: Cause, is_computing: bool) -> None:
        """Go on to `time`.

        Until then, `cause` kept `free` of the `slots` idle. `is_computing`: the strategy was
        computing.
        """
        seconds = time - self.last_time
        if self.computing_seconds is not None and is_computing and not free:
            self.computing_seconds += seconds
        self.last_time = time
        self.elapsed_seconds += seconds
        self.capacity_seconds += seconds * slots
        self.idle = plus(self.idle, cause, seconds * free)


@section
class Durations(Section):
    """Durations of evaluations and computations in seconds; each is 0 before the first one."""

    evaluation_sum: float = 0.0  # the total over the attempts that succeeded
    longest_evaluation: float = 0.0  # the maximum over the attempts that succeeded
    between_outcomes: float = 0.0  # the recent mean time between the arrivals of two outcomes
    choosing: float = 0.0  # the duration of the newest choice
    refreshing: float = 0.0  # the duration of the newest refresh
    # the duration of the newest choice after a refresh, which includes the fit of the posterior
    fitting: float = 0.0

    def succeed(self, seconds: float) -> None:
        """Add a successful evaluation."""
        self.evaluation_sum += seconds
        self.longest_evaluation = max(self.longest_evaluation, seconds)

    def end_attempt(self, since: float | None) -> None:
        """Add an outcome, `since` seconds after the previous one; None for the first of a session."""
        mean = self.between_outcomes
        is_first = since is None or not mean
        self.between_outcomes = (since or 0.0) if is_first else (1.0 - _RECENT) * mean + _RECENT * (since or 0.0)

    def choose(self, seconds: float, is_first: bool) -> None:
        """Add a choice. `is_first`: whether it follows a refresh."""
        self.choosing = seconds
        if is_first:
            self.fitting = seconds


@dataclass(frozen=True, slots=True)
class Mark:
    """Cumulative worker-seconds at one time."""

    time: float
    capacity: float
    missing: float  # those explained neither by an evaluation nor by a known cause of idle time
