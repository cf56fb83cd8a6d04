"""The consequences of a resolved reference.

| the reference resolved to | the attempt | its worker actor |
| --- | --- | --- |
| `ActorUnavailableError`: the connection broke | stays in flight | is asked for the outcome again |
| the death of a process that had refused the attempt | is queued again | – |
| the death of a task's process just after another task was killed | is queued again, once | – |
| the death of a worker that had written the outcome | has this outcome | is gone |
| any other error of Ray | fails | is gone |
| None: the worker never received the attempt | fails (`NODE_LOST`) | is killed |
| an outcome | has this outcome | is free, or ended if it seems damaged |
"""

import logging
import time
from collections import defaultdict
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from ray.exceptions import ActorUnavailableError, RayError

from bbkb.workers.evaluate import is_out_of_descriptors
from bbkb.workers.limits import grace_seconds, missed_deadline
from bbkb.workers.messages import FailureKind, Outcome, TrialFailed
from bbkb.workers.on_ray.failures import describe_error, is_process_death, kind_of, text_of
from bbkb.workers.on_ray.in_flight import Loss, Result, RunningAttempt
from bbkb.workers.on_ray.ledger import HeldAttempt, RefusedAttempt
from bbkb.workers.on_ray.objective import Reference
from bbkb.workers.on_ray.places import Placement
from bbkb.workers.on_ray.tasks import RayTasks
from bbkb.workers.surroundings import Streak

_LOGGER = logging.getLogger("bbkb.executor")

# after the kill of a task, Ray may give its dying process to the next task for this time
_DYING_SECONDS = 2.0


class Again(Enum):
    """An attempt that has not ended."""

    ASK = "it may still be running: ask its worker for the outcome"
    QUEUE = "it was not evaluated: put it back into the queue"


@dataclass(frozen=True, slots=True)
class Ended:
    """The attempt has ended. An unhealthy worker evaluates no further attempt."""

    outcome: Outcome
    is_worker_healthy: bool


Ending: TypeAlias = Again | Loss | Ended  # after a loss, the worker is killed


class Endings:
    """Decides how attempts in flight end."""

    def __init__(self, placement: Placement) -> None:
        self._timeout = placement.limits.timeout_seconds
        self._placement = placement
        self._streaks: defaultdict[str, Streak] = defaultdict(Streak)  # by worker
        # the attempts (trial, attempt) that were queued again because of a killed process
        self._repeated: set[tuple[int, int]] = set()

    def of(self, reference: Reference, attempt: RunningAttempt, result: Result) -> Ending:
        """Return the consequence of a result for the attempt and its worker."""
        match result:
            case ActorUnavailableError():
                return Again.ASK
            case RayError() if is_process_death(result):
                return self._of_death(attempt, result)
            case RayError():
                return _failed(attempt, kind_of(result), describe_error(result))
            case None:
                message = "the connection to its worker broke before it began"
                return Loss(reference, FailureKind.NODE_LOST, message)
            case _:
                return Ended(result, is_worker_healthy=self._is_healthy(attempt, result))

    def _of_death(self, attempt: RunningAttempt, error: RayError) -> Ending:
        """Return the consequence of the death of the attempt's process."""
        match attempt.runner.last_entry(attempt.trial, attempt.attempt):
            case RefusedAttempt():
                return Again.QUEUE
            case HeldAttempt(started=started):
                seconds = time.time() - started
            case None:  # tasks write an entry only if they start late
                seconds = attempt.age_seconds() if attempt.is_task else 0.0
            case written:
                return Ended(written, is_worker_healthy=False)
        identity = {"trial": attempt.trial, "attempt": attempt.attempt}
        _LOGGER.info("Ray's message: %s", text_of(error), extra=identity)
        kind = kind_of(error)
        if kind is FailureKind.WORKER_LOST and self._has_met_hard_deadline(attempt, seconds):
            message = f"{missed_deadline(self._timeout)}, nor when asked to stop: its worker was ended"
            return _failed(attempt, FailureKind.TIMEOUT, message)
        if kind is FailureKind.WORKER_LOST and self._may_have_got_a_killed_process(attempt):
            self._repeated.add((attempt.trial, attempt.attempt))
            return Again.QUEUE
        return _failed(attempt, kind, describe_error(error))

    def _may_have_got_a_killed_process(self, attempt: RunningAttempt) -> bool:
        """Return whether Ray may have sent this task to the process of another one that was just
        killed. False if that was assumed before: the attempt itself then ends its process."""
        is_just_killed = time.monotonic() - RayTasks.last_kill < _DYING_SECONDS
        return attempt.is_task and is_just_killed and (attempt.trial, attempt.attempt) not in self._repeated

    def _has_met_hard_deadline(self, attempt: RunningAttempt, seconds: float) -> bool:
        """Return whether the hard deadline must have killed the process of this attempt.

        Ray reports only that a process has ended. `seconds` is the time since the evaluation began.
        """
        if self._timeout is None:
            return False
        share = self._placement.share_of(attempt.request)
        end_seconds = self._placement.crew.end_seconds(share)
        deadline = self._timeout + grace_seconds(self._timeout) + end_seconds
        return min(seconds, attempt.age_seconds()) >= deadline

    def _is_healthy(self, attempt: RunningAttempt, outcome: Outcome) -> bool:
        """Return whether the worker may evaluate another attempt."""
        if is_out_of_descriptors(outcome) or self._ends_streak(attempt, outcome):
            return False
        return self._placement.crew.is_reusable or not isinstance(outcome, TrialFailed)

    def _ends_streak(self, attempt: RunningAttempt, outcome: Outcome) -> bool:
        """Return whether the worker has failed so many times in a row that it seems damaged."""
        if attempt.request is None:  # adopted: its arm is unknown
            return False
        is_damaged = self._streaks[outcome.worker].is_damaged_after(attempt.request.arm, outcome)
        if is_damaged:
            del self._streaks[outcome.worker]
        return is_damaged


def _failed(attempt: RunningAttempt, kind: FailureKind, message: str) -> Ended:
    return Ended(attempt.failure(kind, message), is_worker_healthy=False)
