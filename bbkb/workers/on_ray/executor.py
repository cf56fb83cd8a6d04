"""Evaluates on a Ray cluster: an attempt is a Ray task, or a call of a worker actor that outlives
this process.

Ray's own retries are off: only the campaign counts attempts. The outcome is created on the worker
(`bbkb.workers.evaluate`), so no exception of an objective has to be pickled. An exception that Ray
itself raises means that the worker, its node or the connection failed, and becomes a `TrialFailed`.

The work is divided among five objects: `Admission` has the queue for the capacity of the cluster,
`InFlight` the attempts that were passed to Ray, `Endings` interprets results, `Watch` finds
attempts whose result will never arrive, and `ReportReceiver` passes on intermediate values.
"""

import itertools
import logging
import time
from collections.abc import Iterable, Mapping, Sequence

import ray

from bbkb.objectives.objective import Objective
from bbkb.workers.clock import SteadyClock
from bbkb.workers.executor import ExecutorError, TakeReports
from bbkb.workers.messages import Attempt, FailureKind, Outcome, TrialStopped, cancellation
from bbkb.workers.on_ray.actors import IDLE_SECONDS
from bbkb.workers.on_ray.admission import Admission
from bbkb.workers.on_ray.allocation import Allocation, allocate
from bbkb.workers.on_ray.durations import Durations
from bbkb.workers.on_ray.endings import Again, Ended, Endings
from bbkb.workers.on_ray.in_flight import UNKNOWN_WORKER, InFlight, Loss, Result, RunningAttempt
from bbkb.workers.on_ray.objective import Reference, put_objective
from bbkb.workers.on_ray.places import Placement, check_feasible
from bbkb.workers.on_ray.reports import ReportReceiver
from bbkb.workers.on_ray.tasks import RayTasks
from bbkb.workers.on_ray.watch import Watch

_LOGGER = logging.getLogger("bbkb.executor")


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
        self._capacity = allocation.capacity
        self._admission = Admission(self._capacity, placement)
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
        self._admission.add(attempts)
        if any(attempt.can_be_stopped for attempt in attempts):
            self._reports.is_awaited = True  # a worker waits for the response to each report
        self._start()

    def next_outcomes(self, timeout: float | None) -> list[Outcome]:
        """Return all outcomes that are available, waiting up to `timeout` seconds for the first."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._in_flight or self._admission:
            self._reports.relay(self._in_flight.by_trial)
            seconds = 0.0 if self._outcomes else self._patience_seconds(deadline)
            for reference, result in self._in_flight.wait(seconds):
                self._settle(reference, result)
            self._check_attempts()
            if self._outcomes or (deadline is not None and time.monotonic() >= deadline):
                break
        self._pool.end_idle_workers(0.0 if self._durations.is_short else IDLE_SECONDS)
        outcomes = self._outcomes
        self._outcomes = []
        return outcomes

    def cancel(self, trials: Iterable[int]) -> None:
        """Kill the workers of these trials. Attempts that have already ended keep their outcome."""
        cancelled = tuple(dict.fromkeys(trials))
        now = time.time()
        for attempt in self._admission.withdraw(cancelled):
            outcome = cancellation(attempt.trial, attempt.attempt, now, now, UNKNOWN_WORKER)
            self._outcomes.append(outcome)
        for reference in self._in_flight.unresolved(cancelled):
            self._give_up(Loss(reference, FailureKind.CANCELLED, "cancelled"))

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
        for collection in (self._admission, self._in_flight, self._outcomes):
            collection.clear()
        self._tasks.close()

    def _start(self) -> None:
        """Submit queued attempts to Ray while there are slots."""
        while attempt := self._admission.take_next(self._in_flight, self._durations):
            runner = self._tasks if self._durations.is_short else self._pool
            reference = runner.start(attempt)
            self._in_flight[reference] = RunningAttempt(
                trial=attempt.trial,
                attempt=attempt.attempt,
                runner=runner,
                request=attempt,
                worker=runner.process(reference) or UNKNOWN_WORKER,
            )

    def _settle(self, reference: Reference, result: Result) -> None:
        """Carry out the consequence of a result."""
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
                self._release_worker(reference, outcome.worker, is_worker_healthy)
                self._durations.learn(outcome, attempt.age_seconds())
                self._end_attempt(reference, outcome)

    def _release_worker(self, reference: Reference, process: str, is_healthy: bool) -> None:
        """Make the attempt's worker actor idle. End it if it is unhealthy."""
        if self._in_flight[reference].is_task:
            return
        if is_healthy:
            self._pool.free(reference, process)
        else:
            self._pool.end(reference)

    def _queue_again(self, reference: Reference) -> None:
        """Return an attempt that has not begun to the front of the queue."""
        request = self._in_flight.pop(reference).request
        assert request is not None, "an adopted attempt has begun"
        self._admission.put_back(request)

    def _end_attempt(self, reference: Reference, outcome: Outcome) -> None:
        """Record the outcome of an attempt, and start the next one."""
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

    def _check_attempts(self) -> None:
        """Give up attempts that are late or lost, and update the number of slots."""
        for loss in self._watch.late(self._in_flight):
            self._give_up(loss)
        if not self._watch.is_node_check_due:
            return
        self._update_slots()
        for loss in self._watch.lost(self._in_flight, self._durations.longest_response_seconds):
            self._give_up(loss)

    def _update_slots(self) -> None:
        """Update the number of slots. Attempts that have lost their slot are queued again."""
        before = self.slots
        if not self._admission.update_slots():
            return
        _LOGGER.info("capacity changed from %d to %d evaluations", before, self.slots)
        self._pool.slots = self.slots
        surplus = max(0, len(self._in_flight) - self.slots)
        for reference in itertools.islice(self._in_flight.waiting_for_actors(), surplus):
            self._pool.end(reference)
            self._queue_again(reference)
        self._start()

    def _patience_seconds(self, deadline: float | None) -> float:
        """Return the time to wait for a result, up to `deadline` on the monotonic clock."""
        patience = self._watch.patience_seconds
        if self._reports.listener is not None:
            patience = min(patience, self._reports.patience_seconds)
        if deadline is not None:
            patience = min(patience, deadline - time.monotonic())
        return max(0.0, patience)
