"""Evaluates in this process, one attempt at a time: for debugging, tests and machines without
Ray."""

import functools
import time
from collections.abc import Iterable, Mapping

from bbkb.objectives.objective import Objective
from bbkb.workers.clock import SteadyClock
from bbkb.workers.evaluate import evaluate
from bbkb.workers.executor import InProcessExecutor
from bbkb.workers.messages import Attempt, FailureKind, Limits, Outcome, Report, TrialFailed


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
            self._ended.append(
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
        """Return the outcomes of cancelled attempts; if there are none, evaluate the next."""
        if self._ended or not self._queue:
            return self._take_ended()
        attempt = next(iter(self._queue.values()))
        publish = functools.partial(self._publish, attempt)
        outcome = evaluate(self._objective, attempt, self._limits, now=self.now, worker="inline", publish=publish)
        del self._queue[attempt.trial]  # an attempt stays in the queue if the user interrupts it
        return [outcome]

    def _publish(self, attempt: Attempt, report: Report | None) -> bool:
        """Pass a report on. Return whether the attempt should stop."""
        if report is None or self._take is None:
            return False
        return attempt.trial in self._take([report])

    def cancel(self, trials: Iterable[int]) -> None:
        """Remove these trials from the queue."""
        self._cancel_queued(trials, self.now(), "inline")

    def pause(self, seconds: float) -> None:
        """Sleep for these seconds."""
        time.sleep(seconds)

    def now(self) -> float:
        """Return wall-clock seconds since the epoch, as `SteadyClock` counts them."""
        return self._clock()
