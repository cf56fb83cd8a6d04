"""The time of a campaign and of its workers. All times are on the executor's clock."""

from dataclasses import asdict, dataclass, field, replace
from typing import Literal, Self

Cause = Literal["start_up", "drift_budget", "batch_end", "refit", "campaign_end", "dispatch"]

LABELS = {
    "start_up": "start-up",
    "drift_budget": "the strategy waits for results",
    "batch_end": "end of a batch",
    "refit": "waiting for the strategy",
    "campaign_end": "end of campaign",
    "dispatch": "dispatch",
    "worker_start": "starting workers",
    "sending": "sending trials",
    "recording": "recording and deciding",
    "other": "other",
}
# a trial that waits longer than this is assumed to wait for a worker process to start
_PROCESS_START_SECONDS = 0.5
_RECENT = 1 / 32  # weight of the newest interval in the mean time between two outcomes


@dataclass(frozen=True, slots=True)
class IdleSeconds:
    """Worker-seconds without an evaluation, by cause."""

    start_up: float = 0.0  # until the first evaluation of a session was dispatched
    drift_budget: float = 0.0  # the strategy allows no further pull before results arrive
    batch_end: float = 0.0  # waiting for the other trials of a batch, in batch mode
    refit: float = 0.0  # the strategy was choosing or refreshing, and the backlog was empty
    campaign_end: float = 0.0  # nothing was left to dispatch
    dispatch: float = 0.0  # the driver was busy with other work

    def plus(self, cause: Cause, seconds: float) -> "IdleSeconds":
        """Add the worker-seconds of an interval."""
        return replace(self, **{cause: getattr(self, cause) + seconds}) if seconds > 0.0 else self

    @property
    def total(self) -> float:
        """The worker-seconds of all causes together."""
        return self.start_up + self.drift_budget + self.batch_end + self.refit + self.campaign_end + self.dispatch

    def by_cause(self) -> dict[str, float]:
        """Return cause → worker-seconds, without causes that did not occur."""
        return {cause: seconds for cause, seconds in asdict(self).items() if seconds > 0.0}


@dataclass(frozen=True, slots=True)
class TransitSeconds:
    """Worker-seconds of dispatched trials that were not being evaluated, by cause."""

    worker_start: float = 0.0  # the trial waited for its worker process to start
    sending: float = 0.0  # the trial was on its way to a worker
    recording: float = 0.0  # the driver recorded the outcome, or decided about the next trial

    def plus(self, before: float, after: float, is_in_loop: bool) -> "TransitSeconds":
        """Add the seconds before and after an evaluation, which are below 0 if the clocks of two
        machines differ. `is_in_loop`: the driver's thread evaluates, so an evaluation only waits for
        the driver."""
        waited = max(0.0, before)
        recorded = max(0.0, after)
        if is_in_loop:
            return replace(self, recording=self.recording + (recorded + waited))
        cause = "worker_start" if waited > _PROCESS_START_SECONDS else "sending"
        return replace(self, **{cause: getattr(self, cause) + waited}, recording=self.recording + recorded)


@dataclass(frozen=True)
class Clock:
    """The time in sessions, without the pauses between them, and its use by the workers."""

    last_time: float = 0.0  # the time of the last event
    opened: float = 0.0  # when the newest session opened
    elapsed_seconds: float = 0.0
    capacity_seconds: float = 0.0  # the sum over time of the number of workers; at least busy + idle
    busy_seconds: float = 0.0  # the total time of attempts that have ended, whatever their outcome
    # of the strategy since the last outcome, while a dispatched trial waited; None unless the
    # driver's thread evaluates, because evaluations otherwise continue during computations
    computing_seconds: float | None = None
    idle: IdleSeconds = field(default_factory=IdleSeconds)
    transit: TransitSeconds = field(default_factory=TransitSeconds)

    def after_attempt(self, waited_from: float, started: float, finished: float) -> "Clock":
        """Return the clock after an attempt whose outcome has just been recorded.

        `waited_from`: when the attempt was dispatched, or its worker became free if that was later.
        """
        if finished <= started:
            return self
        before = started - max(waited_from, self.opened)
        computing = max(0.0, min(before, self.computing_seconds or 0.0))
        after = self.last_time - max(finished, self.opened)
        return replace(
            self,
            busy_seconds=self.busy_seconds + finished - started,
            computing_seconds=None if self.computing_seconds is None else 0.0,
            idle=self.idle.plus("refit", computing),
            transit=self.transit.plus(before - computing, after, self.computing_seconds is not None),
        )

    def advance(self, time: float, slots: int, free: int, cause: Cause, is_computing: bool) -> Self:
        """Return the clock at `time`.

        Until then, `cause` kept `free` of the `slots` idle. `is_computing`: the strategy was
        computing.
        """
        seconds = time - self.last_time
        computing = self.computing_seconds
        if computing is not None and is_computing and not free:
            computing += seconds
        return replace(
            self,
            last_time=time,
            elapsed_seconds=self.elapsed_seconds + seconds,
            capacity_seconds=self.capacity_seconds + seconds * slots,
            computing_seconds=computing,
            idle=self.idle.plus(cause, seconds * free),
        )


@dataclass(frozen=True)
class Durations:
    """Durations of evaluations and computations in seconds; each is 0 before the first one."""

    evaluation_sum: float = 0.0  # the total over the attempts that succeeded
    longest_evaluation: float = 0.0  # the maximum over the attempts that succeeded
    between_outcomes: float = 0.0  # the recent mean time between the arrivals of two outcomes
    choosing: float = 0.0  # the duration of the newest choice
    refreshing: float = 0.0  # the duration of the newest refresh
    # the duration of the newest choice after a refresh, which includes the fit of the posterior
    fitting: float = 0.0

    def after_success(self, seconds: float) -> "Durations":
        """Return the durations after one more successful evaluation."""
        return replace(
            self,
            evaluation_sum=self.evaluation_sum + seconds,
            longest_evaluation=max(self.longest_evaluation, seconds),
        )

    def after_outcome(self, since: float | None) -> "Durations":
        """Return the durations after an outcome, `since` seconds after the previous one.

        `since` is None for the first outcome of a session.
        """
        mean = self.between_outcomes
        if since is None or not mean:
            return replace(self, between_outcomes=since or 0.0)
        return replace(self, between_outcomes=(1.0 - _RECENT) * mean + _RECENT * since)

    def after_choice(self, seconds: float, is_first: bool) -> "Durations":
        """Return the durations after a choice. `is_first`: whether it follows a refresh."""
        return replace(self, choosing=seconds, fitting=seconds if is_first else self.fitting)


@dataclass(frozen=True, slots=True)
class Mark:
    """Cumulative worker-seconds at one time."""

    time: float
    capacity: float
    missing: float  # those explained neither by an evaluation nor by a known cause of idle time
