"""Executors in this process: one that evaluates inline, one attempt at a time, and one that evaluates
in virtual time, in which an hour of a campaign on any number of workers takes no longer than its
table look-ups.

Simulated durations and injected failures depend only on (seed, trial, attempt). A run is therefore
reproducible for any order of submission, and a resumed run continues as if it had not stopped.
"""

import heapq
import itertools
import math
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bbkb.objectives.objective import Objective
from bbkb.workers.evaluate import SteadyClock, evaluate
from bbkb.workers.executor import TakeReports
from bbkb.workers.messages import (
    Attempt,
    FailureKind,
    Limits,
    Outcome,
    Report,
    TrialFailed,
    TrialStopped,
    TrialSucceeded,
)


class InProcessExecutor:
    """The common part of executors whose evaluations end with their process: a queue of attempts."""

    def __init__(self) -> None:
        self._queue: OrderedDict[int, Attempt] = OrderedDict()  # by trial, oldest first
        self._take: TakeReports | None = None

    def adopt(self, attempts: Mapping[int, int]) -> frozenset[int]:
        """Return nothing: no evaluation outlives this process."""
        return frozenset()

    def listen(self, take: TakeReports) -> None:
        """Pass intermediate values to `take`."""
        self._take = take

    def submit(self, attempts: Sequence[Attempt]) -> None:
        """Queue these attempts."""
        self._queue.update((attempt.trial, attempt) for attempt in attempts)

    def acknowledge(self, attempts: Sequence[tuple[int, int]]) -> None:
        """Do nothing: no outcome survives this process."""

    def close(self, leave_running: bool = False) -> None:
        """Clear the queue."""
        self._queue.clear()


class InlineExecutor(InProcessExecutor):
    """An executor with one slot: `next_outcomes` itself evaluates the oldest queued attempt.

    A call can therefore take longer than its `timeout`. Only the time-out is enforced, and only in
    the main thread (see `bbkb.workers.evaluate`). A campaign with a time-out is rejected in other
    threads.
    """

    def __init__(self, objective: Objective, limits: Limits) -> None:
        super().__init__()
        self._objective = objective
        self._clock = SteadyClock()
        self._limits = limits
        self._died: list[Outcome] = []  # of attempts that died with an earlier process

    @property
    def slots(self) -> int:
        """The number of concurrent evaluations: 1."""
        return 1

    def adopt(self, attempts: Mapping[int, int]) -> frozenset[int]:
        """Return the first of `attempts`, which was evaluated when its process died. Its outcome is
        a lost worker. The others were still in the queue of that process."""
        first = list(attempts.items())[:1]
        now = self.now()
        message = "the process ended during this evaluation: by a crash, by os._exit, or because it was killed"
        for trial, attempt in first:
            self._died.append(
                TrialFailed(
                    trial=trial,
                    attempt=attempt,
                    failure=FailureKind.WORKER_LOST,
                    message=message,
                    started=now,
                    finished=now,
                    worker="inline",
                )
            )
        return frozenset(trial for trial, _ in first)

    def next_outcomes(self, timeout: float | None) -> list[Outcome]:
        """Return the outcomes of attempts that died with an earlier process; if there are none, evaluate the
        next."""
        if self._died or not self._queue:
            died, self._died = self._died, []
            return died
        attempt = next(iter(self._queue.values()))

        def publish(report: Report | None) -> bool:
            return report is not None and self._take is not None and attempt.trial in self._take([report])

        outcome = evaluate(self._objective, attempt, self._limits, now=self.now, worker="inline", publish=publish)
        del self._queue[attempt.trial]  # an attempt stays in the queue if the user interrupts it
        return [outcome]

    def pause(self, seconds: float) -> None:
        """Sleep for these seconds."""
        time.sleep(seconds)

    def now(self) -> float:
        """Return wall-clock seconds since the epoch, as `SteadyClock` counts them."""
        return self._clock()


@dataclass(frozen=True, slots=True)
class DurationModel:
    """The durations of evaluations without the metric `metrics["seconds"]`: log-normal."""

    mean_seconds: float = 1.0  # the mean of all durations
    sigma: float = 0.0  # the standard deviation of the logarithm; 0 makes durations constant

    def draw(self, rng: np.random.Generator) -> float:
        """Return a duration in seconds: mean_seconds · exp(N(−σ²/2, σ²)), with mean `mean_seconds`."""
        return float(self.mean_seconds * np.exp(self.sigma * rng.standard_normal() - 0.5 * self.sigma**2))


@dataclass(frozen=True, slots=True)
class Failures:
    """Injected failures: each attempt fails with probability `rate`, partway through, with the
    failure `kind`."""

    rate: float = 0.0
    kind: FailureKind = FailureKind.WORKER_LOST


@dataclass(frozen=True, slots=True, order=True)
class _VirtualAttempt:
    """An attempt on a worker. Sorted by end, then by start."""

    finish: float
    order: int
    worker: int
    outcome: Outcome
    reported: int = 0  # the number of the outcome's reports that were passed on
    report: Report | None = None  # the report due at `finish`; None at the end of the attempt


class SimulatedExecutor(InProcessExecutor):
    """Has `slots` virtual workers and a clock that jumps from one end of an evaluation to the next,
    beginning at `start_at` seconds.

    An attempt is evaluated when a virtual worker starts it, because the objective may return its
    duration. Limits do not apply. Its intermediate values are spread evenly over this duration.
    Virtual time passes without waiting, so timeouts have no effect.
    """

    def __init__(
        self,
        objective: Objective,
        slots: int,
        durations: DurationModel,
        failures: Failures,
        seed: int,
        start_at: float = 0.0,
    ) -> None:
        super().__init__()
        self._objective = objective
        self._durations = durations
        self._failures = failures
        self._seed = seed
        self._now = start_at
        self._slots = slots
        self._idle = list(range(slots))  # a heap, the lowest index first
        self._running: list[_VirtualAttempt] = []  # a heap, the next to end first
        self._order = itertools.count()

    @property
    def slots(self) -> int:
        """The number of virtual workers."""
        return self._slots

    def next_outcomes(self, timeout: float | None) -> list[Outcome]:
        """Return all outcomes at the next time at which an evaluation ends, for any timeout."""
        while self._idle and self._queue:
            _, attempt = self._queue.popitem(last=False)
            worker = heapq.heappop(self._idle)
            self._push(worker, self._simulate(attempt, f"worker-{worker}"))
        outcomes: list[Outcome] = []
        while self._running and (not outcomes or self._running[0].finish <= self._now):
            entry = heapq.heappop(self._running)
            self._now = max(self._now, entry.finish)
            if entry.report is None:
                heapq.heappush(self._idle, entry.worker)
                outcomes.append(entry.outcome)
                continue
            outcome = entry.outcome
            assert self._take is not None
            assert isinstance(outcome, TrialSucceeded)
            if outcome.trial not in self._take([entry.report]):
                self._push(entry.worker, outcome, entry.reported + 1)
                continue
            reports = outcome.reports[: entry.reported + 1]
            values = [next(iter(report.values.values())) for report in reports]
            finite = [value for value in values if math.isfinite(value)]
            end = TrialStopped(
                trial=outcome.trial,
                attempt=outcome.attempt,
                value=finite[-1] if finite else None,
                step=entry.report.step,
                started=outcome.started,
                finished=self._now,
                worker=outcome.worker,
                reports=reports,
            )
            heapq.heappush(self._running, replace(entry, finish=self._now, outcome=end, report=None))
        return outcomes

    def _push(self, worker: int, outcome: Outcome, reported: int = 0) -> None:
        finish = outcome.finished
        report = None
        if self._take is not None and isinstance(outcome, TrialSucceeded) and reported < len(outcome.reports):
            share = (reported + 1) / (len(outcome.reports) + 1)
            finish = outcome.started + share * (outcome.finished - outcome.started)
            report = outcome.reports[reported]
        entry = _VirtualAttempt(finish, next(self._order), worker, outcome, reported, report)
        heapq.heappush(self._running, entry)

    def pause(self, seconds: float) -> None:
        """Advance the virtual clock by these seconds."""
        self._now += seconds

    def now(self) -> float:
        """Return the virtual time, in seconds since the start."""
        return self._now

    def close(self, leave_running: bool = False) -> None:
        """Clear the queue and the attempts in flight."""
        super().close()
        self._running.clear()
        self._idle = list(range(self._slots))

    def _simulate(self, attempt: Attempt, worker: str) -> Outcome:
        # three draws in fixed order, whether used or not: an attempt's duration must not depend on
        # the failure rate
        rng = np.random.default_rng([self._seed, attempt.trial, attempt.attempt])
        seconds = self._durations.draw(rng)
        is_hit = rng.random() < self._failures.rate
        share = rng.random()
        outcome = evaluate(self._objective, attempt, Limits(), now=self.now, worker=worker)
        seconds = outcome.metrics.get("seconds", seconds) if isinstance(outcome, TrialSucceeded) else seconds
        if seconds < 0.0:
            message = f"metrics['seconds'] must be >= 0, got {seconds}"
            return attempt.failure(FailureKind.INVALID_VALUE, message, self._now, self._now, worker)
        if is_hit:
            end = self._now + share * seconds
            return attempt.failure(self._failures.kind, "injected failure", self._now, end, worker)
        return replace(outcome, finished=self._now + seconds)
