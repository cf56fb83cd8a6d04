"""The common part of executors whose evaluations end with their process."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence

from workers.executor import TakeReports
from workers.messages import Attempt, Outcome, cancellation


class InProcessExecutor:
    """A queue of attempts, and the outcomes of cancelled ones.

    It is not thread-safe: a subclass whose evaluations use the queue in other threads needs a lock.
    """

    def __init__(self) -> None:
        self._queue: OrderedDict[int, Attempt] = OrderedDict()  # by trial, oldest first
        self._cancelled: list[Outcome] = []
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
        self._cancelled.clear()

    def _take_cancelled(self) -> list[Outcome]:
        """Return the outcomes of cancelled attempts, once."""
        outcomes = self._cancelled
        self._cancelled = []
        return outcomes

    def _cancel_queued(self, trials: Iterable[int], now: float, worker: str) -> None:
        """Cancel the queued attempts of these trials."""
        for trial in dict.fromkeys(trials):
            attempt = self._queue.pop(trial, None)
            if attempt is not None:
                outcome = cancellation(trial, attempt.attempt, now, now, worker)
                self._cancelled.append(outcome)
