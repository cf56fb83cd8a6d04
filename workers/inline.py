"""Evaluates in this process, one at a time: for debugging, for tests and for machines without
Ray."""

import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence

from objectives.objective import Objective
from workers.clock import SteadyClock
from workers.evaluate import evaluate
from workers.executor import TakeReports
from workers.messages import Attempt, IntermediateValue, Limits, Outcome, Reported, cancellation
from workers.reporting import Publish


class InlineExecutor:
    """One slot: `next_outcomes` itself evaluates the attempt that has waited longest.

    Its `timeout` is therefore not the longest it can take. Only the time-out is enforced, and only
    in the main thread (see `workers.evaluate`); a campaign in another thread that has one is
    refused.
    """

    def __init__(self, objective: Objective, limits: Limits) -> None:
        self._objective = objective
        self._clock = SteadyClock()
        self._limits = limits
        self._queue: OrderedDict[int, Attempt] = OrderedDict()  # by trial, oldest first
        self._cancelled: list[Outcome] = []
        self._take: TakeReports | None = None

    @property
    def slots(self) -> int:
        """The number of evaluations at the same time: 1."""
        return 1

    def adopt(self, attempts: Mapping[int, int]) -> frozenset[int]:
        """Return nothing: no evaluation outlives this process."""
        return frozenset()

    def listen(self, take: TakeReports) -> None:
        """Give intermediate values to `take`, each at once."""
        self._take = take

    def submit(self, attempts: Sequence[Attempt]) -> None:
        """Queue these attempts; `next_outcomes` evaluates them."""
        self._queue.update((attempt.trial, attempt) for attempt in attempts)

    def next_outcomes(self, timeout: float | None) -> list[Outcome]:
        """Return the outcomes of cancelled attempts, else evaluate the next attempt."""
        if self._cancelled:
            outcomes = self._cancelled
            self._cancelled = []
            return outcomes
        if not self._queue:
            return []
        attempt = next(iter(self._queue.values()))
        outcome = evaluate(
            self._objective, attempt, self._limits, now=self.now, worker="inline", publish=self._publisher(attempt)
        )
        del self._queue[attempt.trial]  # an attempt stays in the queue if the user interrupts it
        return [outcome]

    def _publisher(self, attempt: Attempt) -> Publish | None:
        take = self._take
        if take is None:
            return None

        def publish(reported: Reported | None) -> bool:
            if reported is None:
                return False
            return attempt.trial in take([IntermediateValue(attempt.trial, attempt.attempt, reported)])

        return publish

    def cancel(self, trials: Iterable[int]) -> None:
        """Remove these trials from the queue."""
        now = self.now()
        for attempt in [self._queue.pop(id_) for id_ in dict.fromkeys(trials) if id_ in self._queue]:
            self._cancelled.append(cancellation(attempt.trial, attempt.attempt, now, now, "inline"))

    def pause(self, seconds: float) -> None:
        """Sleep for these seconds."""
        time.sleep(seconds)

    def now(self) -> float:
        """Return wall-clock seconds since the epoch, as `SteadyClock` counts them."""
        return self._clock()

    def acknowledge(self, attempts: Sequence[tuple[int, int]]) -> None:
        """Do nothing: no outcome survives this process."""

    def close(self, leave_running: bool = False) -> None:
        """Clear the queue."""
        self._queue.clear()
        self._cancelled.clear()
