"""Evaluates on a Ray cluster: an attempt is a Ray task, or a call of a worker actor that outlives
this process.

Ray's own retries are off: only the campaign counts attempts. The outcome is created on the worker
(`bbkb.workers.evaluate`), so no exception of an objective has to be pickled. An exception that Ray
itself raises means that the worker, its node or the connection failed, and becomes a `TrialFailed`.

The executor has the queue for the capacity of the cluster. `Durations` decides whether attempts
become tasks, `InFlight` has the attempts that were passed to Ray, `Endings` interprets results,
`Watch` finds attempts whose result will never arrive, and `ReportReceiver` passes on intermediate
values.
"""

import logging
import time
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence

import ray

from bbkb.objectives.objective import Objective
from bbkb.workers.evaluate import SteadyClock
from bbkb.workers.executor import ExecutorError, TakeReports
from bbkb.workers.messages import Attempt, Outcome, Share, TrialStopped, TrialSucceeded
from bbkb.workers.on_ray.actors import IDLE_SECONDS, Allocation, allocate
from bbkb.workers.on_ray.crews import Reference, put_objective
from bbkb.workers.on_ray.in_flight import (
    UNKNOWN_WORKER,
    Again,
    Ended,
    Endings,
    InFlight,
    Loss,
    Result,
    RunningAttempt,
    Watch,
)
from bbkb.workers.on_ray.places import Kind, Placement, check_feasible, is_saturated
from bbkb.workers.on_ray.reports import ReportReceiver
from bbkb.workers.on_ray.tasks import RayTasks

_LOGGER = logging.getLogger("bbkb.executor")


SHORT_SECONDS = 0.1  # attempts become tasks if the mean duration falls below this
LONG_SECONDS = 0.2  # attempts move to worker actors if the mean duration rises above this
VERY_SHORT_SECONDS = 0.05  # tasks queue in Ray if the mean duration is below this
MEASURED = 100  # the number of durations in the mean, and of successes before attempts become tasks
# Attempts become tasks if the campaign has this number of evaluations left. If the number is
# unknown, it is assumed to equal the number of successes. This number of calls costs about as much
# as the start of processes.
MANY = 1000


class Durations:
    """The durations of the latest successful evaluations."""

    def __init__(self, kind: Kind, evaluations: int) -> None:
        """`evaluations`: the number of evaluations of the campaign; 0 if it is unknown."""
        self.is_short = kind == "task"  # whether the next attempt runs as a task
        self._evaluations = evaluations
        # from the submission of an attempt to its result, with the start of a worker
        self.longest_response_seconds = 0.0
        self._is_automatic = kind == "auto"
        self._latest: deque[float] = deque(maxlen=MEASURED)
        self._successes = 0

    @property
    def is_very_short(self) -> bool:
        """Whether evaluations are known to be too short to be submitted one by one."""
        return bool(self._latest) and self._mean() < VERY_SHORT_SECONDS

    def learn(self, outcome: Outcome, response_seconds: float) -> None:
        """Record a success that arrived `response_seconds` after its submission."""
        if not isinstance(outcome, TrialSucceeded):
            return
        self.longest_response_seconds = max(self.longest_response_seconds, response_seconds)
        self._successes += 1
        self._latest.append(outcome.finished - outcome.started)
        if not self._is_automatic:
            return
        if self.is_short:
            self.is_short = self._mean() <= LONG_SECONDS
        elif len(self._latest) == MEASURED:
            expected = max(self._successes, self._evaluations - self._successes)
            self.is_short = expected >= MANY and self._mean() < SHORT_SECONDS

    def _mean(self) -> float:
        return sum(self._latest) / len(self._latest)


READY_TASKS = 8  # the least number of very short tasks that may wait in Ray's queue


class RayExecutor:
    """Runs at most `slots` evaluations at a time on the cluster that this process is connected to.

    `slots` follows the capacity of the cluster as nodes join and leave, up to the constructor's
    `slots`. Further attempts wait here, not in Ray's queue. The objective is put into the object
    store once; its arrays reach the workers without a copy, and each worker process unpickles it
    once. Only one thread may use an executor.
    """

    def __init__(
        self,
        objective: Objective,
        slots: int,
        placement: Placement,
        allocation: Allocation | None = None,
        evaluations: int = 0,
    ) -> None:
        """Prepare the evaluation of `objective`.

        Args:
            objective: evaluates one configuration; must be picklable.
            slots: the largest number of concurrent evaluations.
            placement: the resources and limits of one evaluation.
            allocation: workers that were started early with the same slots and placement. This
                executor takes them over and kills them at its end.
            evaluations: the number of evaluations of the campaign; 0 if it is unknown.

        Raises:
            ExecutorError: if the objective cannot be pickled, or no node can hold an evaluation.
        """
        if slots < 1:
            raise ExecutorError(f"workers.count must be >= 1, got {slots}")
        check_feasible(placement)
        box = put_objective(objective)
        allocation = allocation or allocate(slots, placement)
        self._pool = allocation.pool
        self._pool.box = box
        self._tasks = RayTasks(box, placement)
        self._durations = Durations(placement.kind, evaluations)
        self._placement = placement
        self._capacity = allocation.capacity
        self._is_saturated = is_saturated(placement, self.slots)
        self._queue: OrderedDict[int, Attempt] = OrderedDict()  # that Ray does not have yet, by trial
        # the first queued attempt if it did not fit, and the attempts in flight at that time
        self._blocked: tuple[Attempt, frozenset[Reference]] | None = None
        self._in_flight = InFlight()
        self._endings = Endings(placement)
        self._watch = Watch(placement, self._pool)
        self._reports = ReportReceiver(placement.campaign)
        self._clock = SteadyClock()
        self._outcomes: list[Outcome] = []  # those not yet returned

    @property
    def slots(self) -> int:
        """The number of concurrent evaluations that fit into the cluster."""
        return self._capacity.slots

    def adopt(self, attempts: Mapping[int, int]) -> frozenset[int]:
        """Take over the attempts that worker actors of an earlier session still hold, and kill that
        session's other workers. Returns the trials of these attempts."""
        finished, running = self._pool.adopt(attempts)
        self._outcomes += finished
        if finished or running:
            _LOGGER.info("adopted %d finished and %d running evaluations", len(finished), len(running))
        for reference, trial, number, started in sorted(running, key=lambda adopted: adopted[3]):
            submitted = time.monotonic() - max(0.0, time.time() - started)
            attempt = RunningAttempt(
                trial=trial, attempt=number, runner=self._pool, submitted=submitted, started=started
            )
            self._in_flight[reference] = attempt
        return frozenset([*self._in_flight.by_trial(), *(outcome.trial for outcome in finished)])

    def listen(self, take: TakeReports) -> None:
        """Pass intermediate values to `take`, shortly after they were reported."""
        self._reports.listener = take

    def submit(self, attempts: Sequence[Attempt]) -> None:
        """Queue these attempts, and submit as many to Ray as there are slots."""
        self._queue.update((attempt.trial, attempt) for attempt in attempts)
        if any(attempt.can_be_stopped for attempt in attempts):
            self._reports.is_awaited = True  # a worker waits for the response to each report
        self._start()

    def next_outcomes(self, timeout: float | None) -> list[Outcome]:
        """Return all outcomes that are available, waiting up to `timeout` seconds for the first."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._in_flight:
            self._reports.relay(self._in_flight.by_trial)
            patience = 0.0 if self._outcomes else self._watch.patience_seconds
            if self._reports.listener is not None:
                patience = min(patience, self._reports.patience_seconds)
            if deadline is not None:
                patience = min(patience, deadline - time.monotonic())
            for reference, result in self._in_flight.wait(max(0.0, patience)):
                self._settle(reference, result)
            for loss in self._watch.late(self._in_flight):
                self._give_up(loss)
            if self._watch.is_node_check_due:
                self._update_slots()
                for loss in self._watch.lost(self._in_flight, self._durations.longest_response_seconds):
                    self._give_up(loss)
            if self._outcomes or (deadline is not None and time.monotonic() >= deadline):
                break
        self._pool.end_idle_workers(0.0 if self._durations.is_short else IDLE_SECONDS)
        outcomes = self._outcomes
        self._outcomes = []
        return outcomes

    def pause(self, seconds: float) -> None:
        """Sleep for `seconds`."""
        time.sleep(seconds)

    def now(self) -> float:
        """Return wall-clock seconds since the epoch. The times of outcomes are on the worker's
        clock."""
        return self._clock()

    def acknowledge(self, attempts: Sequence[tuple[int, int]]) -> None:
        """Remove the outcomes of these attempts from the ledger."""
        self._pool.acknowledge(attempts)

    def close(self, leave_running: bool = False) -> None:
        """Kill the attempts in flight and release the objective.

        With `leave_running`, worker actors continue for another session. Tasks end with this
        process in any case.
        """
        if ray.is_initialized():  # without this check, these calls would start Ray again
            for reference, attempt in self._in_flight.items():
                if attempt.is_task:
                    self._tasks.end(reference)
            self._pool.close(leave_running)
            self._capacity.close()
        for collection in (self._queue, self._in_flight, self._outcomes):
            collection.clear()
        self._tasks.close()

    def _start(self) -> None:
        """Pass queued attempts to Ray, up to the number of slots.

        Very short tasks may exceed it if the cluster itself limits their number. The next task then
        starts without waiting for this process.
        """
        while self._queue:
            most = self.slots
            if self._is_saturated and self._durations.is_short and self._durations.is_very_short:
                most += max(most, READY_TASKS)
            attempt = self._first_that_fits() if len(self._in_flight) < most else None
            if attempt is None:
                return
            del self._queue[attempt.trial]
            runner = self._tasks if self._durations.is_short else self._pool
            reference = runner.start(attempt)
            self._in_flight[reference] = RunningAttempt(
                trial=attempt.trial,
                attempt=attempt.attempt,
                runner=runner,
                request=attempt,
                worker=runner.process(reference) or UNKNOWN_WORKER,
            )

    def _first_that_fits(self) -> Attempt | None:
        """Return the first queued attempt if it fits, else one that may overtake it.

        All attempts that were in flight when the first one was blocked will end. Until then,
        attempts that fit beside the first one may start; afterwards it comes next.
        """
        first = next(iter(self._queue.values()))
        running = {reference: attempt.request for reference, attempt in self._in_flight.items()}
        if self._capacity.has_room(first, running.values()):
            return first
        if self._blocked is None or self._blocked[0] != first:
            self._blocked = first, frozenset(running)
        older = self._blocked[1]
        if older.isdisjoint(running):
            return None
        newer = [request for reference, request in running.items() if reference not in older]
        neighbors = (running.values(), [first, *newer])  # now, and when the first one starts
        tried = set[Share | None]()
        for attempt in self._queue.values():
            if attempt.share not in tried:  # all attempts with this demand fit or none does
                tried.add(attempt.share)
                if all(self._capacity.has_room(attempt, beside) for beside in neighbors):
                    return attempt
        return None

    def _settle(self, reference: Reference, result: Result) -> None:
        attempt = self._in_flight[reference]
        match self._endings.of(reference, attempt, result):
            case Again.ASK:
                successor = self._pool.ask(reference, attempt.trial, attempt.attempt)
                self._in_flight.replace(reference, successor)
            case Again.QUEUE:
                self._queue_again(reference)
                self._start()
            case Loss() as loss:
                self._give_up(loss)
            case Ended(outcome, is_worker_healthy):
                if not is_worker_healthy:
                    self._watch.check_nodes_soon()  # the node and its slots may be lost
                if is_worker_healthy and not attempt.is_task:
                    self._pool.free(reference, outcome.worker)
                elif not attempt.is_task:
                    self._pool.end(reference)
                self._durations.learn(outcome, attempt.age_seconds())
                self._end_attempt(reference, outcome)

    def _queue_again(self, reference: Reference) -> None:
        """Queue an attempt that Ray did not start, before all others."""
        request = self._in_flight.pop(reference).request
        assert request is not None, "an adopted attempt has begun"
        self._queue[request.trial] = request
        self._queue.move_to_end(request.trial, last=False)

    def _end_attempt(self, reference: Reference, outcome: Outcome) -> None:
        self._outcomes.append(outcome)
        if isinstance(outcome, TrialStopped):
            self._reports.forget_stop(outcome.trial, outcome.attempt)
        del self._in_flight[reference]
        self._start()

    def _give_up(self, loss: Loss) -> None:
        """Kill an attempt and record its end at once: its reference may never resolve."""
        attempt = self._in_flight[loss.reference]
        _LOGGER.warning(
            "marked the attempt as lost (%s): %s",
            loss.kind.value,
            loss.message,
            extra={"trial": attempt.trial, "attempt": attempt.attempt},
        )
        attempt.runner.end(loss.reference)
        self._end_attempt(loss.reference, attempt.failure(loss.kind, loss.message))

    def _update_slots(self) -> None:
        """Count the slots again. Attempts that have lost their slot are queued again."""
        before = self.slots
        if self._capacity.update() == before:
            return
        _LOGGER.info("capacity changed from %d to %d evaluations", before, self.slots)
        self._is_saturated = is_saturated(self._placement, self.slots)
        self._pool.slots = self.slots
        for reference, attempt in reversed(list(self._in_flight.items())):  # the newest first
            if len(self._in_flight) <= self.slots:
                break
            if attempt.is_task or attempt.request is None:
                continue
            if self._pool.last_entry(attempt.trial, attempt.attempt) is None:  # its worker has not begun it
                self._pool.end(reference)
                self._queue_again(reference)
        self._start()
