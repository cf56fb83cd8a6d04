"""The supervision of the attempts in flight: their deadlines, nodes and reports.

A reference may never resolve: its node does not respond, its worker hangs, or the cluster has no
capacity for its task. This module finds such attempts, and the executor gives them up.
"""

import logging
import time
from collections.abc import Iterator

from workers.executor import TakeReports
from workers.limits import grace_seconds
from workers.messages import FailureKind, Limits
from workers.on_ray.actors import WorkerPool
from workers.on_ray.deadlines import Deadlines
from workers.on_ray.in_flight import InFlight, Loss, RunningAttempt
from workers.on_ray.ledger import Ledger
from workers.on_ray.objective import Reference
from workers.on_ray.places import NodeWatch, Placement
from workers.on_ray.reports import ReportReceiver

_LOGGER = logging.getLogger("bbkb.executor")

# the part of a task's lease for the start of a worker process and the unpickling of the objective
START_UP_SECONDS = 30.0
# added to the longest response time so far: the time limit for tasks after the death of a node
NODE_GRACE_SECONDS = 10.0


class Watch:
    """Watches the attempts in flight of one campaign."""

    def __init__(self, limits: Limits, placement: Placement, pool: WorkerPool) -> None:
        self._timeout = limits.timeout_seconds
        self._ledger = Ledger(placement.campaign)
        self._nodes = NodeWatch()
        further_seconds = placement.crew.further_seconds
        self._deadlines = Deadlines(limits.timeout_seconds, pool, further_seconds)
        self._reports = ReportReceiver(placement.campaign)
        self._listener: TakeReports | None = None

    @property
    def patience_seconds(self) -> float:
        """The seconds until the nodes, the deadlines or the reports must be checked."""
        patience = min(self._nodes.patience_seconds, self._deadlines.patience_seconds)
        if self._listener is None:
            return patience
        return min(patience, self._reports.patience_seconds)

    @property
    def is_node_check_due(self) -> bool:
        """Whether `lost` should be called now, a few seconds after the last call."""
        return self._nodes.patience_seconds == 0.0

    def check_nodes_soon(self) -> None:
        """Make the next check of the nodes due now."""
        self._nodes.check_soon()

    def listen(self, take: TakeReports) -> None:
        """Pass reports to `take`, which returns the trials to stop."""
        self._listener = take

    def expect_reports(self) -> None:
        """Check for reports often, because a worker waits for the response to each of them."""
        self._reports.is_awaited = True

    def relay_reports(self, in_flight: InFlight) -> None:
        """Pass the reports that have arrived to the listener, and respond to them."""
        if self._listener is None or not (values := self._reports.take()):
            return
        stopped = self._listener(values)
        attempts = {attempt.trial: attempt.attempt for _, attempt in in_flight.items()}
        self._reports.answer((trial, attempts[trial]) for trial in stopped if trial in attempts)

    def forget_stop(self, trial: int, attempt: int) -> None:
        """Remove the stop request of this attempt, which has stopped."""
        self._reports.forget([(trial, attempt)])

    def late(self, in_flight: InFlight) -> list[Loss]:
        """Return the attempts that have missed a deadline."""
        if self._deadlines.patience_seconds > 0.0:
            return []
        on_actors = {
            (attempt.trial, attempt.attempt): reference
            for reference, attempt in in_flight.items()
            if not attempt.is_task
        }
        return [*self._deadlines.late(on_actors), *self._expired_leases(in_flight)]

    def lost(self, in_flight: InFlight, longest_response_seconds: float) -> list[Loss]:
        """Return the attempts whose node has died, which Ray may not report for minutes.

        The node of a task is unknown. After the death of any node, tasks are given up if they take
        longer than `longest_response_seconds` plus `NODE_GRACE_SECONDS` from then on.
        """
        nodes = self._nodes.newly_dead()
        for node in nodes:
            _LOGGER.warning("node %s has died", node)
        patience = longest_response_seconds + NODE_GRACE_SECONDS
        losses = (self._loss_of(*entry, nodes, patience) for entry in in_flight.items())
        return [loss for loss in losses if loss is not None]

    def _loss_of(
        self,
        reference: Reference,
        attempt: RunningAttempt,
        nodes: frozenset[str],
        patience: float,
    ) -> Loss | None:
        """Return the loss of an attempt, if it is lost.

        Args:
            reference: the reference of the attempt.
            attempt: an attempt in flight.
            nodes: the nodes that have died since the last check.
            patience: the seconds that a task may run after the death of a node.
        """
        now = time.monotonic()
        if nodes and not attempt.is_task:
            if self._ledger.node_of(attempt.trial, attempt.attempt) not in nodes:
                return None
            message = "the node that it ran on has died"
            return Loss(reference, FailureKind.NODE_LOST, message)
        if nodes and attempt.suspected is None:
            attempt.suspected = now
        if attempt.suspected is None or now <= attempt.suspected + patience:
            return None
        message = (
            "a node has died, and it has not answered for longer than any other attempt has taken: "
            "it probably ran there"
        )
        return Loss(reference, FailureKind.NODE_LOST, message)

    def _expired_leases(self, in_flight: InFlight) -> Iterator[Loss]:
        """Yield the tasks whose lease has expired: both deadlines in the worker have passed."""
        if self._timeout is None:
            return
        lease = self._timeout + 2.0 * grace_seconds(self._timeout) + START_UP_SECONDS
        causes = "its node is unreachable, or the cluster has no room"
        message = f"it has not answered for {lease:g} s: {causes}"
        for reference, attempt in in_flight.items():
            if attempt.is_task and attempt.age_seconds() > lease:
                yield Loss(reference, FailureKind.NODE_LOST, message)
