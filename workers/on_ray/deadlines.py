"""The deadlines of attempts on worker actors, enforced independently of the workers.

A worker ends its own overdue evaluation (`workers.evaluate`). A worker that was suspended, or whose
node hangs, cannot do so. Therefore the campaign's process measures the time, too. It uses only its
own monotonic clock: the clock of another node may be wrong, and any wall clock may be changed.
"""

import logging
import time
from collections.abc import Iterator, Mapping

from workers.limits import grace_seconds
from workers.messages import FailureKind
from workers.on_ray.actors import WorkerPool
from workers.on_ray.in_flight import Loss
from workers.on_ray.objective import Reference

_LOGGER = logging.getLogger("bbkb.executor")

CHECK_SECONDS = 1.0  # between two checks
_CHECK_SHARE = 0.05  # the largest share of this process's time that checks may take
# the time for a worker process to begin its attempt: to unpickle the objective and read its data
BEGIN_SECONDS = 600.0
WAITING_SECONDS = 60.0  # the wait of an attempt for a worker before a warning is logged

Key = tuple[int, int]  # trial and attempt


class Deadlines:
    """The deadlines of the attempts on the worker actors of a pool."""

    def __init__(
        self,
        timeout_seconds: float | None,
        pool: WorkerPool,
        further_seconds: float = 0.0,
    ) -> None:
        """Watch the attempts of `pool`.

        Args:
            timeout_seconds: the setting `workers.timeout_seconds`. If it is None, only the
                beginning of an evaluation has a deadline.
            pool: the workers.
            further_seconds: the time for work before and after an evaluation.
        """
        self._timeout = timeout_seconds
        self._pool = pool
        self._further = further_seconds
        # by attempt, on the monotonic clock: the first checks that saw the attempt, saw it begun,
        # and saw its worker alive without having begun it
        self._first_noted: dict[Key, float] = {}
        self._begun: dict[Key, float] = {}
        self._alive: dict[Key, float] = {}
        self._is_waiting = False  # whether a warning about waiting attempts was logged
        self._next_check = 0.0

    @property
    def patience_seconds(self) -> float:
        """The seconds until the next check is due."""
        return max(0.0, self._next_check - time.monotonic())

    def late(self, attempts: Mapping[Key, Reference]) -> list[Loss]:
        """Return the attempts that must be given up, or nothing if no check is due."""
        now = time.monotonic()
        if now < self._next_check:
            return []
        for times in (self._first_noted, self._begun, self._alive):
            for key in times.keys() - attempts.keys():
                del times[key]
        late = list(self._judge(attempts, now))
        self._report_waiting(now)
        after = time.monotonic()
        self._next_check = after + max(CHECK_SECONDS, (after - now) / _CHECK_SHARE)
        return late

    def _judge(self, attempts: Mapping[Key, Reference], now: float) -> Iterator[Loss]:
        for key, reference in attempts.items():
            self._first_noted.setdefault(key, now)
            if key not in self._begun and self._pool.has_begun(*key):
                self._begun[key] = now
            if key in self._begun:
                if self._is_overdue(now - self._begun[key]):
                    yield self._timeout_of(reference)
            elif self._is_idle_too_long(key, reference, now):
                rule = f"its worker has not begun to evaluate within {BEGIN_SECONDS:g} s"
                message = f"{rule}: it was killed"
                yield Loss(reference, FailureKind.WORKER_LOST, message)

    def _is_idle_too_long(self, key: Key, reference: Reference, now: float) -> bool:
        """Return whether the worker of an attempt has been alive for too long without beginning it.

        Ray is queried only about late attempts.
        """
        if now - self._first_noted[key] <= BEGIN_SECONDS or not self._pool.is_alive(reference):
            return False
        return now - self._alive.setdefault(key, now) > BEGIN_SECONDS

    def _is_overdue(self, seconds: float) -> bool:
        """Return whether both the soft and the hard deadline in the worker must have passed."""
        if self._timeout is None:
            return False
        return seconds > self._timeout + 2.0 * grace_seconds(self._timeout) + self._further

    def _timeout_of(self, reference: Reference) -> Loss:
        message = (
            f"no result within timeout_seconds = {self._timeout:g}, and its worker ended neither the evaluation nor "
            "itself (it was stopped, or its node hangs): it was killed"
        )
        return Loss(reference, FailureKind.TIMEOUT, message)

    def _report_waiting(self, now: float) -> None:
        """Log one warning while attempts wait for a worker."""
        waiting = sorted(
            trial
            for (trial, attempt), last_seen in self._first_noted.items()
            if (trial, attempt) not in self._begun and now - last_seen > WAITING_SECONDS
        )
        if waiting and not self._is_waiting:
            _LOGGER.warning(
                "attempts that have waited for a worker for more than %g s: %d, the first of trial %d; the cluster "
                "has no free resources, or the worker starts slowly: `ray status` shows the resources in use",
                WAITING_SECONDS,
                len(waiting),
                waiting[0],
            )
        self._is_waiting = bool(waiting)
