"""The attempts in flight, which were passed to Ray, and how each of them ends.

| the reference resolved to | the attempt | its worker actor |
| --- | --- | --- |
| `ActorUnavailableError`: the connection broke | stays in flight | is asked for the outcome again |
| the death of a process that had refused the attempt | is queued again | – |
| the death of a task's process just after another task was killed | is queued again, once | – |
| the death of a worker that had written the outcome | has this outcome | is gone |
| any other error of Ray | fails | is gone |
| None: the worker never received the attempt | fails (`NODE_LOST`) | is killed |
| an outcome | has this outcome | is free, or ended if it seems damaged |

A reference may also never resolve: its node does not respond, its worker hangs, or the cluster has
no capacity for its task. A worker ends its own overdue evaluation (`bbkb.workers.evaluate`), but one
that was suspended, or whose node hangs, cannot do so. Therefore `Watch` measures the time, too. It
uses only the monotonic clock of this process: the clock of another node may be wrong, and any wall
clock may be changed.
"""

import logging
import math
import re
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

import ray
from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    ObjectLostError,
    OutOfMemoryError,
    RayError,
    RayTaskError,
    RuntimeEnvSetupError,
    TaskCancelledError,
    WorkerCrashedError,
)

from bbkb.workers.evaluate import MESSAGE_CHARACTERS, is_out_of_descriptors, storable, summary_of
from bbkb.workers.limits import Streak, grace_seconds, missed_deadline
from bbkb.workers.messages import Attempt, FailureKind, Outcome, TrialFailed
from bbkb.workers.on_ray.actors import WorkerPool
from bbkb.workers.on_ray.crews import Reference
from bbkb.workers.on_ray.ledger import HeldAttempt, RefusedAttempt
from bbkb.workers.on_ray.places import Placement
from bbkb.workers.on_ray.tasks import RayTasks

_LOGGER = logging.getLogger("bbkb.executor")


_COLOR = re.compile(r"\x1b\[[0-9;]*m")

# The first matching row applies: Ray derives one exception from both TaskCancelledError and
# RayTaskError.
_KINDS: tuple[tuple[type[RayError], FailureKind], ...] = (
    (OutOfMemoryError, FailureKind.OUT_OF_MEMORY),
    # The reference of an attempt that was given up is no longer watched. Any other cancellation is a
    # KeyboardInterrupt raised on the worker.
    (TaskCancelledError, FailureKind.ERROR),
    (RuntimeEnvSetupError, FailureKind.ERROR),
    (RayTaskError, FailureKind.ERROR),  # the worker cannot unpickle or import the objective
    (WorkerCrashedError, FailureKind.WORKER_LOST),
    (ActorDiedError, FailureKind.WORKER_LOST),
    (RayError, FailureKind.NODE_LOST),  # node died, object or owner lost, unschedulable, …
)
# Ray's texts for external causes of an actor's death; Ray has no types for them.
_NODE_DIED = (
    "node has died",
    "node was terminated",
    "node died",
    "node is dead",
    "raylet died",
    "drained",
    "preempted",
)
_PROCESS_DIED = "worker process has died"
_CRASH = (
    "its worker process died before the evaluation ended: the evaluation crashed it (in native code) or ended it "
    "(os._exit), or the system killed it for lack of memory. Evaluate the configuration alone, or with fewer workers"
)
_OUT_OF_MEMORY = ("OutOfMemory", "out of memory", "memory monitor", "memory pressure", "low on memory")


def kind_of(error: RayError) -> FailureKind:
    """Return the kind of failure for an exception of Ray."""
    if isinstance(error, RayTaskError) and isinstance(error.cause, ObjectLostError):
        return FailureKind.NODE_LOST  # the campaign died before the worker had the objective
    kind = next(kind for exception, kind in _KINDS if isinstance(error, exception))
    if kind is not FailureKind.WORKER_LOST:
        return kind
    text = str(error).lower()
    if any(words.lower() in text for words in _OUT_OF_MEMORY):
        return FailureKind.OUT_OF_MEMORY
    return FailureKind.NODE_LOST if any(words in text for words in _NODE_DIED) else kind


def describe_error(error: RayError) -> str:
    """Return cause and remedy of a process's death; else Ray's message, after a summary of the
    exception on the worker if there is one."""
    text = text_of(error)
    if kind_of(error) is FailureKind.WORKER_LOST and (isinstance(error, WorkerCrashedError) or _PROCESS_DIED in text):
        return _CRASH
    if not isinstance(error, RayTaskError):
        return f"{type(error).__name__}: {text}"[:MESSAGE_CHARACTERS]
    summary = summary_of(error.cause)
    return f"{summary}\n{text[-(MESSAGE_CHARACTERS - len(summary) - 1) :]}"


def text_of(error: RayError) -> str:
    """Return Ray's message without colors."""
    return storable(_COLOR.sub("", str(error))).strip()


def fetch(references: list[Reference]) -> Iterable[Outcome | RayError | None]:
    """Return the result of each reference, or the error that Ray raises for it.

    If Ray raises nothing, the usual case, a single call gets all results.
    """
    try:
        return list(ray.get(references))
    except RayError as error:
        if len(references) == 1:
            return [error]
        return [result for reference in references for result in fetch([reference])]


UNKNOWN_WORKER = "unknown"

# A reference resolves to an outcome, to an error that Ray raises, or to None if the worker never
# received the attempt.
Result: TypeAlias = Outcome | RayError | None


@dataclass(slots=True, kw_only=True)
class RunningAttempt:
    """An attempt in flight."""

    trial: int  # the trial's index
    attempt: int  # the attempt's number within its trial
    runner: RayTasks | WorkerPool  # the tasks or the worker pool that runs it
    # the attempt as it was submitted; None if it was adopted from an earlier session
    request: Attempt | None = None
    # the machine and process of its worker, for the message of a failure
    worker: str = UNKNOWN_WORKER
    # the time of its submission, on the monotonic clock
    submitted: float = field(default_factory=time.monotonic)
    # the wall-clock time of its submission, for the message of a failure
    started: float = field(default_factory=time.time)
    # since when its node may be dead, on the monotonic clock; None if no node has died
    suspected: float | None = None
    # monotonic times of the first checks that saw that its worker actor had begun it, and that the
    # worker was alive without having begun it
    begun: float | None = None
    alive: float | None = None

    @property
    def is_task(self) -> bool:
        """Whether the attempt runs as a task, not on a worker actor."""
        return isinstance(self.runner, RayTasks)

    def age_seconds(self) -> float:
        """Return the seconds since the attempt was submitted to Ray."""
        return time.monotonic() - self.submitted

    def failure(self, kind: FailureKind, message: str) -> TrialFailed:
        """Return a failure on behalf of the worker."""
        now = time.time()
        started = min(now, self.started)
        return TrialFailed(
            trial=self.trial,
            attempt=self.attempt,
            failure=kind,
            message=message,
            started=started,
            finished=now,
            worker=self.worker,
        )


@dataclass(frozen=True, slots=True)
class Loss:
    """An attempt to give up: its reference may never resolve."""

    reference: Reference  # the attempt's reference
    kind: FailureKind  # the kind of its failure
    message: str  # the reason, for the user


class InFlight(dict[Reference, RunningAttempt]):
    """The attempts in flight by reference, oldest first. The reference of an attempt that was
    removed is ignored if it resolves later."""

    def by_trial(self) -> dict[int, int]:
        """Return the attempt in flight of each trial."""
        return {attempt.trial: attempt.attempt for attempt in self.values()}

    def replace(self, reference: Reference, successor: Reference) -> None:
        """Change the reference of an attempt, which keeps its position."""
        names = {reference: successor}
        renamed = {names.get(key, key): attempt for key, attempt in self.items()}
        self.clear()
        self.update(renamed)

    def wait(self, seconds: float) -> Iterable[tuple[Reference, Result]]:
        """Wait up to `seconds` for the first result, and return all available results."""
        ready, unready = ray.wait(list(self), num_returns=1, timeout=seconds)
        if ready and unready:
            ready += ray.wait(unready, num_returns=len(unready), timeout=0)[0]
        return zip(ready, fetch(ready), strict=True)


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
            case WorkerCrashedError() | ActorDiedError():
                return self._of_death(attempt, result)
            case RayError():
                return _failed(attempt, kind_of(result), describe_error(result))
            case None:
                message = "the connection to its worker broke before it began"
                return Loss(reference, FailureKind.NODE_LOST, message)
            case _:
                return Ended(result, is_worker_healthy=self._is_healthy(attempt, result))

    def _of_death(self, attempt: RunningAttempt, error: RayError) -> Ending:
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
        if kind is FailureKind.WORKER_LOST and self._timeout is not None:
            # Ray reports only that a process has ended: after this time, the hard deadline must have killed it
            deadline = self._timeout + grace_seconds(self._timeout) + self._placement.crew.end_seconds
            if min(seconds, attempt.age_seconds()) >= deadline:
                message = f"{missed_deadline(self._timeout)}, nor when asked to stop: its worker was ended"
                return _failed(attempt, FailureKind.TIMEOUT, message)
        key = attempt.trial, attempt.attempt
        is_just_killed = attempt.is_task and time.monotonic() - RayTasks.last_kill < _DYING_SECONDS
        if kind is FailureKind.WORKER_LOST and is_just_killed and key not in self._repeated:
            self._repeated.add(key)  # if this happens again, the attempt itself ends its process
            return Again.QUEUE
        return _failed(attempt, kind, describe_error(error))

    def _is_healthy(self, attempt: RunningAttempt, outcome: Outcome) -> bool:
        if is_out_of_descriptors(outcome):
            return False
        streak, request = self._streaks[outcome.worker], attempt.request
        if request is not None and streak.is_damaged_after(request.arm, outcome):  # None: adopted, of an unknown arm
            del self._streaks[outcome.worker]
            return False
        return self._placement.crew.is_reusable or not isinstance(outcome, TrialFailed)


def _failed(attempt: RunningAttempt, kind: FailureKind, message: str) -> Ended:
    return Ended(attempt.failure(kind, message), is_worker_healthy=False)


# the part of a task's lease for the start of a worker process and the unpickling of the objective
START_UP_SECONDS = 30.0
# added to the longest response time so far: the time limit for tasks after the death of a node
NODE_GRACE_SECONDS = 10.0
# the time for a worker process to begin its attempt: to unpickle the objective and read its data
BEGIN_SECONDS = 600.0
WAITING_SECONDS = 60.0  # the wait of an attempt for a worker before a warning is logged
_NODE_CHECK_SECONDS = 3.0  # between two reads of the list of nodes
_DEADLINE_CHECK_SECONDS = 1.0  # between two checks of the deadlines
_CHECK_SHARE = 0.05  # the largest share of this process's time that these may take


class Watch:
    """Watches the attempts in flight of one campaign."""

    def __init__(self, placement: Placement, pool: WorkerPool) -> None:
        self._timeout = placement.limits.timeout_seconds
        self._pool = pool
        self._further_seconds = placement.crew.further_seconds
        self._dead_nodes = _dead_nodes()
        self._next_node_check = time.monotonic() + _NODE_CHECK_SECONDS
        self._next_deadline_check = 0.0
        self._is_waiting = False  # whether a warning about waiting attempts was logged

    @property
    def patience_seconds(self) -> float:
        """The seconds until the nodes or the deadlines must be checked."""
        next_check = min(self._next_node_check, self._next_deadline_check)
        return max(0.0, next_check - time.monotonic())

    @property
    def is_node_check_due(self) -> bool:
        """Whether `lost` should be called now, a few seconds after the last call."""
        return time.monotonic() >= self._next_node_check

    def check_nodes_soon(self) -> None:
        """Make the next check of the nodes due now."""
        self._next_node_check = 0.0

    def lost(self, in_flight: InFlight, longest_response_seconds: float) -> list[Loss]:
        """Return the attempts whose node has died, which Ray may not report for minutes.

        The node of a task is unknown. After the death of any node, tasks are given up if they take
        longer than `longest_response_seconds` plus `NODE_GRACE_SECONDS` from then on.
        """
        self._next_node_check = time.monotonic() + _NODE_CHECK_SECONDS
        dead_before = self._dead_nodes
        self._dead_nodes = _dead_nodes()
        newly_dead = self._dead_nodes - dead_before
        for node in newly_dead:
            _LOGGER.warning("node %s has died", node)
        patience = longest_response_seconds + NODE_GRACE_SECONDS
        now = time.monotonic()
        losses = []
        for reference, attempt in in_flight.items():
            if attempt.is_task:
                if newly_dead and attempt.suspected is None:
                    attempt.suspected = now
                if attempt.suspected is None or now <= attempt.suspected + patience:
                    continue
                message = (
                    "a node has died, and it has not answered for longer than any other attempt has taken: it "
                    "probably ran there"
                )
            else:
                entry = self._pool.last_entry(attempt.trial, attempt.attempt) if newly_dead else None
                if not isinstance(entry, HeldAttempt) or entry.node not in newly_dead:
                    continue
                message = "the node that it ran on has died"
            losses.append(Loss(reference, FailureKind.NODE_LOST, message))
        return losses

    def late(self, in_flight: InFlight) -> list[Loss]:
        """Return the attempts that have missed a deadline, or nothing if no check is due."""
        now = time.monotonic()
        if now < self._next_deadline_check:
            return []
        # after this time, both the soft and the hard deadline in the worker have passed
        deadline = math.inf if self._timeout is None else self._timeout + 2.0 * grace_seconds(self._timeout)
        lease = deadline + START_UP_SECONDS
        late = []
        for reference, attempt in in_flight.items():
            age = attempt.age_seconds()
            if attempt.is_task:
                if age > lease:
                    message = (
                        f"it has not answered for {lease:g} s: its node is unreachable, or the cluster has no room"
                    )
                    late.append(Loss(reference, FailureKind.NODE_LOST, message))
                continue
            if attempt.begun is None and self._pool.last_entry(attempt.trial, attempt.attempt) is not None:
                attempt.begun = now
            if attempt.begun is not None:
                if now - attempt.begun > deadline + self._further_seconds:
                    message = (
                        f"{missed_deadline(self._timeout)}, and its worker ended neither the evaluation nor itself (it "
                        "was stopped, or its node hangs): it was killed"
                    )
                    late.append(Loss(reference, FailureKind.TIMEOUT, message))
            elif age > BEGIN_SECONDS and self._pool.is_alive(reference):  # Ray is queried only about late attempts
                attempt.alive = attempt.alive or now
                if now - attempt.alive > BEGIN_SECONDS:
                    message = f"its worker has not begun to evaluate within {BEGIN_SECONDS:g} s: it was killed"
                    late.append(Loss(reference, FailureKind.WORKER_LOST, message))
        waiting = sorted(
            attempt.trial
            for attempt in in_flight.values()
            if not attempt.is_task and attempt.begun is None and attempt.age_seconds() > WAITING_SECONDS
        )
        if waiting and not self._is_waiting:
            _LOGGER.warning(
                "attempts that have waited for a worker for more than %g s: %d, the first of trial %d; "
                "the cluster has no free resources, or the worker starts slowly: `ray status` shows "
                "the resources in use",
                WAITING_SECONDS,
                len(waiting),
                waiting[0],
            )
        self._is_waiting = bool(waiting)
        after = time.monotonic()
        pause = max(_DEADLINE_CHECK_SECONDS, (after - now) / _CHECK_SHARE)
        self._next_deadline_check = after + pause
        return late


def _dead_nodes() -> frozenset[str]:
    return frozenset(node["NodeID"] for node in ray.nodes() if not node["Alive"])
