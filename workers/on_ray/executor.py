"""Evaluates on a Ray cluster: an attempt is a Ray task, or a call of a worker actor that outlives
this process.

Ray's own retries are off: the campaign alone counts attempts. The outcome is built on the worker
(`workers.evaluate`), so nothing an objective raises has to be pickled; what Ray itself raises means
that the worker, the node or the way there failed, and becomes a `Failure` here
(`workers.on_ray.failures`). A reference that never resolves (a silent node) is given up: by lease
where evaluations have a time-out, else when a node is known to have died.
"""

import logging
import time
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import ray
from ray.exceptions import ActorUnavailableError, RayError

from objectives.objective import Objective
from workers.clock import SteadyClock
from workers.evaluate import is_out_of_descriptors
from workers.executor import ExecutorError, TakeReports
from workers.limits import grace_seconds
from workers.messages import Attempt, Failure, FailureKind, Limits, Outcome, Stopped, Success, cancellation
from workers.on_ray.actors import IDLE_SECONDS, WorkerPool, title_of
from workers.on_ray.allocation import Allocation, allocate
from workers.on_ray.deadlines import Deadlines
from workers.on_ray.failures import describe_error, fetch, is_process_death, kind_of
from workers.on_ray.groups import Turns
from workers.on_ray.objective import Reference, put_objective
from workers.on_ray.places import NodeWatch, Placement, check_feasible, is_saturated
from workers.on_ray.ranks import OTHERS_SECONDS
from workers.on_ray.reports import ReportReceiver
from workers.on_ray.tasks import RayTasks
from workers.on_ray.trainers import check_ray_train
from workers.surroundings import Streak

_LOGGER = logging.getLogger("bbkb.executor")

START_UP_SECONDS = 30.0  # in a task's lease, for the start of a worker process and the unpickling of the objective
SHORT_SECONDS = 2.0  # mean duration below which evaluations are tasks
LONG_SECONDS = 3.0  # mean duration above which they are calls of worker actors
VERY_SHORT_SECONDS = 0.05  # mean duration below which more tasks wait in Ray's queue
READY_TASKS = 8  # at least so many more
NODE_GRACE_SECONDS = 10.0  # for tasks, beyond the longest time to an answer so far, after some node has died
_TURN_LOOK_SECONDS = 0.1  # between two looks at whether another campaign, which comes first, has begun
_REMEMBERED = 20  # number of durations in the mean
_UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class _RunningAttempt:
    """An attempt that Ray has. `since` (monotonic clock) tells its age, `started` (wall clock)
    stamps its failure."""

    trial: int
    attempt: int
    place: RayTasks | WorkerPool
    since: float
    started: float
    request: Attempt | None = None  # what was submitted; None when it was adopted

    def age_seconds(self) -> float:
        """Return seconds since it was submitted to Ray."""
        return time.monotonic() - self.since


class RayExecutor:
    """At most `slots` evaluations at a time, on the cluster this process is connected to, as
    `placement` says.

    `slots` follows the number of evaluations that the cluster has room for, as nodes join and
    leave; it is never above what it was made with. More attempts than that wait here and not in
    Ray's queue. The objective is put into the object store once; its arrays reach the workers
    without a copy, and each worker process unpickles it once. Use it from one thread. Raises
    ExecutorError when the objective cannot be pickled or no node can ever hold one evaluation.
    """

    def __init__(
        self,
        objective: Objective,
        slots: int,
        limits: Limits,
        placement: Placement,
        allocation: Allocation | None = None,
    ) -> None:
        """`allocation`: workers that were started for the same slots, limits and placement; this
        executor ends them."""
        if slots < 1:
            raise ExecutorError(f"workers.count must be >= 1, got {slots}")
        if placement.is_train:
            check_ray_train()
        check_feasible(placement, limits)
        box = put_objective(objective)
        allocation = allocation or allocate(slots, limits, placement)
        self._placement = placement
        self._places = allocation.places
        self._is_gang = placement.has_group(placement.largest or placement.share_of(None))
        self._is_saturated = is_saturated(placement, self.slots)
        self._limits = limits
        self._tasks = RayTasks(box, limits, placement)
        self._turns = Turns()
        self._is_held_back = False  # whether attempts wait here because it is another campaign's turn
        self._pool = allocation.pool
        self._pool.provide(box)
        self._is_short = placement.kind == "task"  # whether the next attempt is a task
        self._durations: deque[float] = deque(maxlen=_REMEMBERED)  # of the last successes
        self._longest_seconds = 0.0  # from the submission of an attempt to its answer
        self._nodes = NodeWatch()
        self._clock = SteadyClock()
        self._streaks: defaultdict[str, Streak] = defaultdict(Streak)  # by worker
        self._deadlines = Deadlines(limits.timeout_seconds, self._pool, OTHERS_SECONDS if self._is_gang else 0.0)
        self._queue: OrderedDict[int, Attempt] = OrderedDict()  # by trial id, in the order submitted
        self._ahead: tuple[Attempt, frozenset[Reference]] | None = None  # the first of the queue when it had no room
        self._running: dict[Reference, _RunningAttempt] = {}  # by reference, the oldest first; at most `slots`
        self._references: dict[int, Reference] = {}  # of what runs, by trial id
        # attempts whose node may have died, and since when (monotonic)
        self._suspects: dict[Reference, float] = {}
        self._reports = ReportReceiver(placement.campaign)
        self._listener: TakeReports | None = None
        self._outcomes: list[Outcome] = []  # not returned yet

    @property
    def slots(self) -> int:
        """Evaluations at the same time that the cluster has room for now."""
        return self._places.count

    def adopt(self, attempts: Mapping[int, int]) -> frozenset[int]:
        """Take over what worker actors of an earlier session hold of these; their other workers are
        ended."""
        there, running = self._pool.adopt(attempts)
        self._outcomes += there
        if there or running:
            _LOGGER.info("adopted %d finished and %d running evaluations of workers", len(there), len(running))
        for reference, (trial, attempt, entry) in sorted(running.items(), key=lambda item: item[1][2].started):
            age = max(0.0, time.time() - entry.started)
            self._enter(reference, _RunningAttempt(trial, attempt, self._pool, time.monotonic() - age, entry.started))
        return frozenset(outcome.trial for outcome in there) | frozenset(self._references)

    def listen(self, take: TakeReports) -> None:
        """Give intermediate values to `take`, a short while after they were reported."""
        self._listener = take

    def submit(self, attempts: Sequence[Attempt]) -> None:
        """Hand these attempts to Ray, as far as there are slots."""
        self._queue.update((attempt.trial, attempt) for attempt in attempts)
        self._reports.is_awaited |= any(attempt.can_be_stopped for attempt in attempts)
        self._start()

    def next_outcomes(self, timeout: float | None) -> list[Outcome]:
        """Return all outcomes that are there; waits up to `timeout` seconds for the first."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._running or self._queue:
            self._relay_reports()
            self._collect(0.0 if self._outcomes else self._patience_seconds(deadline))
            if self._is_held_back:
                self._start()
            self._expire()
            self._look_at_nodes()
            if self._outcomes or (deadline is not None and time.monotonic() >= deadline):
                break
        self._pool.end_idle_workers(0.0 if self._is_short or self._places.is_crowded else IDLE_SECONDS)
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def cancel(self, trials: Iterable[int]) -> None:
        """Kill the workers of these attempts; those that have ended already keep their outcome."""
        cancelled = dict.fromkeys(trials)
        now = time.time()
        for attempt in [self._queue.pop(id_) for id_ in cancelled if id_ in self._queue]:
            self._outcomes.append(cancellation(attempt.trial, attempt.attempt, now, now, _UNKNOWN))
        running = [self._references[id_] for id_ in cancelled if id_ in self._references]
        if running:
            _done, unfinished = ray.wait(running, num_returns=len(running), timeout=0)
            for reference in unfinished:
                self._give_up(reference, FailureKind.CANCELLED, "cancelled")

    def pause(self, seconds: float) -> None:
        """Sleep for these seconds."""
        time.sleep(seconds)

    def now(self) -> float:
        """Return wall-clock seconds since the epoch. Outcomes are stamped by the worker's clock."""
        return self._clock()

    def acknowledge(self, attempts: Sequence[tuple[int, int]]) -> None:
        """Let the ledger forget their outcomes."""
        self._pool.acknowledge(attempts)

    def close(self, leave_running: bool = False) -> None:
        """Kill what is in flight and release the objective in the object store; `leave_running`:
        worker actors continue for another session, tasks end with this process."""
        if ray.is_initialized():  # otherwise Ray would be started again
            for reference, attempt in self._running.items():
                if attempt.place is self._tasks:
                    self._tasks.end(reference)
            self._pool.close(leave_running)
            self._places.close()
        for collection in (self._queue, self._running, self._references, self._suspects, self._outcomes):
            collection.clear()
        self._tasks.close()

    def _relay_reports(self) -> None:
        if self._listener is None or (values := self._reports.take()) == []:
            return
        stopped = self._listener(values)
        attempts = {attempt.trial: attempt.attempt for attempt in self._running.values()}
        self._reports.answer((trial, attempts[trial]) for trial in stopped if trial in attempts)

    def _start(self) -> None:
        """Give Ray what waits here, as far as there are slots and it is this campaign's turn."""
        self._is_held_back = False
        while self._queue and len(self._running) < self._window():
            self._is_held_back = self._turns.is_of_others()
            if self._is_held_back or (attempt := self._next_attempt()) is None:
                return
            del self._queue[attempt.trial]
            place = self._tasks if self._is_short else self._pool
            running = _RunningAttempt(
                trial=attempt.trial,
                attempt=attempt.attempt,
                place=place,
                since=time.monotonic(),
                started=time.time(),
                request=attempt,
            )
            self._enter(place.start(attempt), running)

    def _next_attempt(self) -> Attempt | None:
        """Return the first attempt that waits if there is room for it, else one that takes only what
        the first leaves.

        While attempts run that were there before the first one waited, others may start beside
        them that fit together with it. When those have ended, none starts before the first.
        """
        first = next(iter(self._queue.values()))
        running = {reference: it.request for reference, it in self._running.items()}
        if self._places.has_room(first, running.values()):
            return first
        if self._ahead is None or self._ahead[0] != first:
            self._ahead = first, frozenset(running)
        before = self._ahead[1]
        if before.isdisjoint(running):
            return None
        beside = [first, *(request for reference, request in running.items() if reference not in before)]
        refused: set[tuple[object, float]] = set()
        for attempt in self._queue.values():
            size = attempt.share, attempt.memory_factor
            if size in refused:
                continue
            if self._places.has_room(attempt, running.values()) and self._places.has_room(attempt, beside):
                return attempt
            refused.add(size)
        return None

    def _window(self) -> int:
        """Return attempts that Ray may have. More than `slots` of very short ones, when the cluster
        itself ensures that no more run at a time: the next one then starts without waiting for this
        process."""
        if not (self._is_saturated and self._is_short and self._durations):
            return self.slots
        is_very_short = sum(self._durations) < VERY_SHORT_SECONDS * len(self._durations)
        return self.slots + max(self.slots, READY_TASKS) if is_very_short else self.slots

    def _enter(self, reference: Reference, attempt: _RunningAttempt) -> None:
        self._running[reference] = attempt
        self._references[attempt.trial] = reference

    def _collect(self, patience_seconds: float) -> None:
        """Take in every result that is there, waiting for the first of them."""
        if not self._running:  # all that waits is for other campaigns to begin
            time.sleep(patience_seconds)
            return
        ready, unready = ray.wait(list(self._running), num_returns=1, timeout=patience_seconds)
        if ready and unready:
            ready += ray.wait(unready, num_returns=len(unready), timeout=0)[0]
        for reference, result in zip(ready, fetch(ready), strict=True):
            self._take(reference, result)

    def _take(self, reference: Reference, result: Outcome | RayError | None) -> None:
        """One result, or what Ray raised, or None for an attempt that a worker was asked for and
        has not evaluated."""
        attempt = self._running[reference]
        if isinstance(result, ActorUnavailableError):  # the connection was lost; the worker may still evaluate
            again = self._pool.ask(reference, attempt.trial, attempt.attempt)
            self._running = {again if previous == reference else previous: it for previous, it in self._running.items()}
            self._references[attempt.trial] = again
        elif isinstance(result, RayError) and self._was_refused(attempt, result):
            self._take_back(reference)
            self._start()
        elif isinstance(result, RayError):
            self._nodes.look_next_time()  # its node may be lost, with its places
            outcome = self._written_outcome(attempt, result)
            self._leave(reference, is_well=False)
            self._end_attempt(reference, outcome or self._loss(attempt, result))
        elif result is None:
            self._give_up(reference, FailureKind.NODE_LOST, "the connection to its worker broke before it began")
        else:
            is_ill = is_out_of_descriptors(result) or self._is_damaged(attempt, result)
            # its other processes may be in a bad state
            is_ill = is_ill or (isinstance(result, Failure) and self._is_gang)
            self._leave(reference, is_well=not is_ill)
            self._learn(result, self._running[reference].age_seconds())
            self._end_attempt(reference, result)

    def _was_refused(self, attempt: _RunningAttempt, error: RayError) -> bool:
        """Return whether it came to a task's process that was about to end itself, and was not
        evaluated."""
        is_of_task = attempt.place is self._tasks and is_process_death(error)
        return is_of_task and self._tasks.was_refused(attempt.trial, attempt.attempt)

    def _written_outcome(self, attempt: _RunningAttempt, error: RayError) -> Outcome | None:
        """Return the outcome that a worker actor wrote before its process ended."""
        if attempt.place is not self._pool or not is_process_death(error):
            return None
        return self._pool.written_outcome(attempt.trial, attempt.attempt)

    def _take_back(self, reference: Reference) -> None:
        """Let an attempt that has not begun wait here again, before all others."""
        attempt = self._running.pop(reference)
        assert attempt.request is not None, "an adopted one runs"
        del self._references[attempt.trial]
        self._suspects.pop(reference, None)
        self._queue[attempt.trial] = attempt.request
        self._queue.move_to_end(attempt.trial, last=False)

    def _is_damaged(self, attempt: _RunningAttempt, outcome: Outcome) -> bool:
        """Return whether the worker's last evaluations failed one after the other, on different
        arms."""
        if attempt.request is None:  # adopted: its arm is not known here
            return False
        is_damaged = self._streaks[outcome.worker].is_damaged_after(attempt.request.arm, outcome)
        if is_damaged:
            del self._streaks[outcome.worker]
        return is_damaged

    def _leave(self, reference: Reference, is_well: bool) -> None:
        """A worker actor is free again, or of no more use; where campaigns take turns, its place goes
        to the next."""
        if self._running[reference].place is not self._pool:
            return
        if is_well and not self._places.is_crowded:
            self._pool.free(reference)
            return
        self._pool.end(reference)
        if self._places.is_crowded:
            self._turns.give(title_of(name) for name in self._places.others)

    def _learn(self, outcome: Outcome, age_seconds: float) -> None:
        """Learn how long evaluations take, which decides between tasks and worker actors, and how
        long their answers, with the start of a worker."""
        if not isinstance(outcome, Success):
            return
        self._longest_seconds = max(self._longest_seconds, age_seconds)
        self._durations.append(outcome.finished - outcome.started)
        if self._placement.kind == "auto":
            mean = sum(self._durations) / len(self._durations)
            self._is_short = mean < (LONG_SECONDS if self._is_short else SHORT_SECONDS)

    def _end_attempt(self, reference: Reference, outcome: Outcome) -> None:
        """This attempt has ended; a reference that resolves later is not looked at any more."""
        self._outcomes.append(outcome)
        if isinstance(outcome, Stopped):
            self._reports.forget([(outcome.trial, outcome.attempt)])
        del self._running[reference]
        del self._references[outcome.trial]
        self._suspects.pop(reference, None)
        self._start()

    def _loss(self, attempt: _RunningAttempt, error: RayError) -> Failure:
        """Return what Ray raised, as a failure."""
        limit = self._limits.timeout_seconds
        kind = kind_of(error)
        is_death = kind is FailureKind.WORKER_LOST and is_process_death(error)
        if (
            is_death
            and limit is not None
            and self._has_outlasted(attempt, limit + grace_seconds(limit, self._has_ranks(attempt)))
        ):
            # the hard deadline ends the worker's process, and Ray reports only that a process has
            # ended
            message = f"no result within timeout_seconds = {limit:g}, nor when asked to stop: its worker was ended"
            return _failure(attempt, FailureKind.TIMEOUT, message)
        return _failure(attempt, kind, describe_error(error))

    def _has_ranks(self, attempt: _RunningAttempt) -> bool:
        """Return whether this attempt runs the objective on several machines."""
        return not self._placement.is_train and self._placement.share_of(attempt.request).machines > 1

    def _has_outlasted(self, attempt: _RunningAttempt, seconds: float) -> bool:
        """Return whether an attempt has evaluated for this time. The ledger is read only when it
        was submitted so long ago."""
        age = attempt.age_seconds()
        return age >= seconds and attempt.place.evaluation_seconds(attempt.trial, attempt.attempt, age) >= seconds

    def _give_up(self, reference: Reference, kind: FailureKind, message: str) -> None:
        """Kill an attempt and end it at once: its reference may never resolve."""
        attempt = self._running[reference]
        identity = {"trial": attempt.trial, "attempt": attempt.attempt}
        _LOGGER.warning("took the attempt for lost (%s): %s", kind.value, message, extra=identity)
        attempt.place.end(reference)
        self._end_attempt(reference, _failure(attempt, kind, message))

    def _lease_seconds(self) -> float | None:
        """Return the seconds after which a task counts as lost: both deadlines on the worker must
        have passed."""
        limit = self._limits.timeout_seconds
        return None if limit is None else limit + 2.0 * grace_seconds(limit) + START_UP_SECONDS

    def _expire(self) -> None:
        """Give up attempts that are late: their workers hang, their node does not answer, or they
        are tasks that got no place."""
        if self._deadlines.patience_seconds > 0.0:
            return
        in_actors = {(it.trial, it.attempt): key for key, it in self._running.items() if it.place is self._pool}
        for late in self._deadlines.late(in_actors):
            self._give_up(late.reference, late.kind, late.message)
        if (lease := self._lease_seconds()) is None:
            return
        for reference, attempt in list(self._running.items()):
            if attempt.place is self._tasks and attempt.age_seconds() > lease:
                message = f"it has not answered for {lease:g} s: its node is unreachable, or the cluster has no room"
                self._give_up(reference, FailureKind.NODE_LOST, message)

    def _look_at_nodes(self) -> None:
        """Follow the number of places. When a node has died, its attempts will not come back,
        though Ray may not say so for minutes."""
        now = time.monotonic()
        if self._nodes.patience_seconds == 0.0:
            self._follow_places()
        lost = self._nodes.lost_nodes()
        for node in lost:
            _LOGGER.warning("node %s has died", node)
        for reference, attempt in list(self._running.items()) if lost else ():
            if attempt.place is self._tasks:  # where they run is not known
                self._suspects.setdefault(reference, now)
            elif self._pool.node_of(attempt.trial, attempt.attempt) in lost:
                self._give_up(reference, FailureKind.NODE_LOST, "the node that it ran on has died")
        for reference, since in list(self._suspects.items()):
            if now > since + self._longest_seconds + NODE_GRACE_SECONDS:
                message = "a node has died, and it has not answered for longer than any other one took to answer"
                self._give_up(reference, FailureKind.NODE_LOST, message)

    def _follow_places(self) -> None:
        """Take in how many evaluations the cluster has room for now; take back attempts that no
        place is left for."""
        before, now = self.slots, self._places.look()
        if now == before:
            return
        _LOGGER.info("the cluster has room for %d evaluations, had %d", now, before)
        self._pool.slots = now
        self._is_saturated = is_saturated(self._placement, now)
        surplus = len(self._running) - now
        for reference, attempt in list(self._running.items())[::-1] if surplus > 0 else ():
            is_waiting = attempt.place is self._pool and not self._pool.has_begun(attempt.trial, attempt.attempt)
            if surplus > 0 and is_waiting and attempt.request is not None:
                self._pool.end(reference)
                self._take_back(reference)
                surplus -= 1
        self._start()

    def _patience_seconds(self, deadline: float | None) -> float:
        """Return how long to wait for a result: until `deadline`, or the next look at the nodes, for
        late attempts, for reports or at whose turn it is."""
        patience = [self._nodes.patience_seconds, self._deadlines.patience_seconds]
        if self._listener is not None:
            patience.append(self._reports.patience_seconds)
        if self._is_held_back:
            patience.append(_TURN_LOOK_SECONDS)
        if deadline is not None:
            patience.append(deadline - time.monotonic())
        return max(0.0, min(patience))


def _failure(attempt: _RunningAttempt, kind: FailureKind, message: str) -> Failure:
    """Return a failure that the worker could not report itself, so its name is not known."""
    now = time.time()
    return Failure(
        trial=attempt.trial,
        attempt=attempt.attempt,
        kind=kind,
        message=message,
        started=min(now, attempt.started),
        finished=now,
        worker=_UNKNOWN,
    )
