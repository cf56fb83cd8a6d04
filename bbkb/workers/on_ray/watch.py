"""The supervision of the attempts in flight: their deadlines and nodes.

A reference may never resolve: its node does not respond, its worker hangs, or the cluster has no
capacity for its task. This module finds such attempts, and the executor gives them up.

A worker ends its own overdue evaluation (`bbkb.workers.evaluate`). A worker that was suspended, or whose
node hangs, cannot do so. Therefore the campaign's process measures the time, too. It uses only its
own monotonic clock: the clock of another node may be wrong, and any wall clock may be changed.
"""

import logging
import time
from collections.abc import Iterable, Iterator, Mapping

import ray

from bbkb.workers.limits import grace_seconds, missed_deadline
from bbkb.workers.messages import FailureKind
from bbkb.workers.on_ray.actors import WorkerPool
from bbkb.workers.on_ray.in_flight import InFlight, Loss, RunningAttempt
from bbkb.workers.on_ray.ledger import HeldAttempt
from bbkb.workers.on_ray.objective import Reference
from bbkb.workers.on_ray.places import Placement

_LOGGER = logging.getLogger("bbkb.executor")

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
        losses = (self._loss_of(*entry, newly_dead, patience) for entry in in_flight.items())
        return [loss for loss in losses if loss is not None]

    def _loss_of(
        self,
        reference: Reference,
        attempt: RunningAttempt,
        newly_dead: frozenset[str],
        patience: float,
    ) -> Loss | None:
        """Return the loss of an attempt if it is lost. `patience`: the seconds that a task may run
        after the death of a node."""
        now = time.monotonic()
        if newly_dead and not attempt.is_task:
            entry = self._pool.last_entry(attempt.trial, attempt.attempt)
            if not isinstance(entry, HeldAttempt) or entry.node not in newly_dead:
                return None
            message = "the node that it ran on has died"
            return Loss(reference, FailureKind.NODE_LOST, message)
        if newly_dead and attempt.suspected is None:
            attempt.suspected = now
        if attempt.suspected is None or now <= attempt.suspected + patience:
            return None
        message = (
            "a node has died, and it has not answered for longer than any other attempt has taken: "
            "it probably ran there"
        )
        return Loss(reference, FailureKind.NODE_LOST, message)

    def late(self, in_flight: InFlight) -> list[Loss]:
        """Return the attempts that have missed a deadline, or nothing if no check is due."""
        now = time.monotonic()
        if now < self._next_deadline_check:
            return []
        on_actors = {reference: attempt for reference, attempt in in_flight.items() if not attempt.is_task}
        late = [*self._late_on_actors(on_actors, now), *self._late_tasks(in_flight)]
        self._report_waiting(on_actors.values())
        after = time.monotonic()
        pause = max(_DEADLINE_CHECK_SECONDS, (after - now) / _CHECK_SHARE)
        self._next_deadline_check = after + pause
        return late

    def _late_on_actors(self, attempts: Mapping[Reference, RunningAttempt], now: float) -> Iterator[Loss]:
        for reference, attempt in attempts.items():
            if attempt.begun is None and self._pool.last_entry(attempt.trial, attempt.attempt) is not None:
                attempt.begun = now
            if attempt.begun is not None:
                if self._is_overdue(now - attempt.begun):
                    missed = missed_deadline(self._timeout)
                    neither = "and its worker ended neither the evaluation nor itself"
                    cause = "it was stopped, or its node hangs"
                    message = f"{missed}, {neither} ({cause}): it was killed"
                    yield Loss(reference, FailureKind.TIMEOUT, message)
            elif self._is_idle_too_long(reference, attempt, now):
                rule = f"its worker has not begun to evaluate within {BEGIN_SECONDS:g} s"
                yield Loss(reference, FailureKind.WORKER_LOST, f"{rule}: it was killed")

    def _is_idle_too_long(self, reference: Reference, attempt: RunningAttempt, now: float) -> bool:
        """Return whether the worker of an attempt has been alive for too long without beginning it.

        Ray is queried only about late attempts.
        """
        if attempt.age_seconds() <= BEGIN_SECONDS or not self._pool.is_alive(reference):
            return False
        attempt.alive = attempt.alive or now
        return now - attempt.alive > BEGIN_SECONDS

    def _is_overdue(self, seconds: float) -> bool:
        """Return whether both the soft and the hard deadline in the worker must have passed."""
        if self._timeout is None:
            return False
        return seconds > self._timeout + 2.0 * grace_seconds(self._timeout) + self._further_seconds

    def _late_tasks(self, in_flight: InFlight) -> Iterator[Loss]:
        """Yield the tasks whose lease has expired: both deadlines in the worker have passed."""
        if self._timeout is None:
            return
        lease = self._timeout + 2.0 * grace_seconds(self._timeout) + START_UP_SECONDS
        causes = "its node is unreachable, or the cluster has no room"
        message = f"it has not answered for {lease:g} s: {causes}"
        for reference, attempt in in_flight.items():
            if attempt.is_task and attempt.age_seconds() > lease:
                yield Loss(reference, FailureKind.NODE_LOST, message)

    def _report_waiting(self, on_actors: Iterable[RunningAttempt]) -> None:
        """Log one warning while attempts wait for a worker."""
        waiting = sorted(
            attempt.trial for attempt in on_actors if attempt.begun is None and attempt.age_seconds() > WAITING_SECONDS
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


def _dead_nodes() -> frozenset[str]:
    return frozenset(node["NodeID"] for node in ray.nodes() if not node["Alive"])
