"""An evaluation on several machines: the worker actor, which is rank 0, and a helper process on
each other machine.

The worker actor starts the helpers as its children, in the bundles 1, 2, … of its placement group.
Ray ends them with the worker actor, so none remains when it dies. All ranks run the same objective.
If one of them fails, rank 0 asks all others to end: they receive SIGTERM, and are killed if they
have not ended `END_SECONDS` later. The request is an entry in Ray's key-value store, which each
helper reads in a thread, because its main thread evaluates.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from bbkb.objectives.machines import END_SECONDS, Machine, free_port
from bbkb.workers.evaluate import evaluate, with_saved_checkpoint, worker_name
from bbkb.workers.gangs.groups import GroupCrew, cause_of
from bbkb.workers.limits import HARD_END_SECONDS, handling
from bbkb.workers.messages import (
    Attempt,
    FailureKind,
    Limits,
    Outcome,
    TrialFailed,
    TrialStopped,
    TrialSucceeded,
)
from bbkb.workers.on_ray import internals
from bbkb.workers.on_ray.actors import end_actor
from bbkb.workers.on_ray.crews import Box, get_objective, refuse_trainers
from bbkb.workers.on_ray.in_flight import describe_error, kind_of
from bbkb.workers.reporting import Publish

START_SECONDS = 120.0  # the time limit for starting the helpers' processes
# the time limit for Ray to notice the death of a helper's node, if the helper does not end
NODE_SECONDS = 60.0
# after a failure of rank 0, the wait for another rank's failure that may be its cause
CAUSE_SECONDS = 5.0
# the time for the work of rank 0 before and after an evaluation
OTHERS_SECONDS = START_SECONDS + CAUSE_SECONDS + 2.0 * HARD_END_SECONDS + NODE_SECONDS
_POLL_SECONDS = 0.5


class Helper:
    """A process that evaluates attempts, one at a time, on a machine other than the first."""

    def __init__(self, campaign: str) -> None:
        self._campaign = campaign

    def begin(self, box: Box) -> str:
        """Fetch the objective, so that the evaluation no longer needs the campaign's process, and
        return the address of this machine."""
        get_objective(box)
        return str(ray.util.get_node_ip_address())

    def evaluate(self, box: Box, attempt: Attempt, limits: Limits, machine: Machine) -> Outcome:
        """Run the objective as this rank. Its success means only that this rank ended without an
        error; the value is not used."""
        objective = get_objective(box)
        refuse_trainers(objective)

        def is_requested() -> bool:  # False if Ray's head does not respond
            try:
                return internals.get(_end_key(self._campaign, attempt)) is not None
            except (RayError, OSError, RuntimeError) as error:
                print(f"bbkb: the other machines cannot be watched: {error}", file=sys.stderr, flush=True)
                return False

        with _end_when(is_requested):
            return evaluate(objective, attempt, limits, is_expendable=True, machine=machine)


def _end_key(campaign: str, attempt: Attempt) -> str:
    """Return the key of the request to end an attempt, which rank 0 writes and the other ranks read."""
    return f"{campaign}\nend\n{attempt.trial}\n{attempt.attempt}"


@contextlib.contextmanager
def _end_when(
    is_requested: Callable[[], bool], last_words: Callable[[], None] = lambda: None
) -> Iterator[None]:  # fmt: skip
    """End the evaluation inside when `is_requested`: with SIGTERM, then by ending this process if
    it continues.

    `last_words` is called before this process ends. SIGTERM is ignored if no evaluation is running.
    """
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(_POLL_SECONDS):
            if is_requested():
                os.kill(os.getpid(), signal.SIGTERM)
                if not ended.wait(HARD_END_SECONDS):
                    last_words()
                    os._exit(1)
                return

    watcher = threading.Thread(target=watch, daemon=True, name="other machines")
    with handling(signal.SIGTERM, signal.SIG_IGN):
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()


@dataclass(slots=True)
class _Others:
    """The evaluations of one attempt on the other machines.

    addresses: of all machines, by rank. running: the calls that have not ended, with their ranks.
    end_key: of the request to end. failures: of the ranks that failed, in the order of detection.
    end_requested: when they were asked to end (monotonic clock); failures after that time are
    ignored.
    """

    attempt: Attempt
    started: float
    addresses: Sequence[str]
    running: dict[Any, int]
    end_key: str
    failures: list[TrialFailed] = field(default_factory=list)
    end_requested: float | None = None

    def collect(self, seconds: float) -> None:
        """Receive the available results, waiting for the first one."""
        if not self.running:
            return
        ready, _ = ray.wait(list(self.running), num_returns=1, timeout=seconds)
        for reference in ready:
            rank = self.running.pop(reference)
            try:
                outcome: Outcome = ray.get(reference)
            except RayError as error:
                kind = kind_of(error)
                had_time = self.end_requested is not None and time.monotonic() - self.end_requested >= END_SECONDS
                if kind is FailureKind.NODE_LOST or not had_time:
                    self.note(rank, kind, describe_error(error), time.time())
                continue
            if isinstance(outcome, TrialFailed) and self.end_requested is None:
                # none of our requests has ended it
                is_killed = outcome.failure is FailureKind.CANCELLED
                kind = FailureKind.WORKER_LOST if is_killed else outcome.failure
                message = "its process got SIGTERM" if is_killed else outcome.message
                self.note(rank, kind, message, outcome.finished)

    def collect_all(self, seconds: float) -> None:
        """Receive all results that arrive within this time."""
        deadline = time.monotonic() + seconds
        while self.running and (seconds_left := deadline - time.monotonic()) > 0.0:
            self.collect(seconds_left)

    def request_end(self) -> None:
        """Ask the other ranks to end, once."""
        if self.end_requested is None:
            self.end_requested = time.monotonic()
            internals.put(self.end_key, b"1")

    def note(self, rank: int, kind: FailureKind, message: str, finished: float) -> None:
        message = f"on machine {rank} ({self.addresses[rank]}): {message}"
        self.failures.append(self.attempt.failure(kind, message, self.started, finished, worker_name()))


class RankCrew(GroupCrew):
    """A crew in which the worker actor is rank 0 and has a helper for each other rank."""

    further_seconds = OTHERS_SECONDS
    end_seconds = HARD_END_SECONDS

    def __init__(self, campaign: str) -> None:
        self._campaign = campaign
        self._helpers: list[Any] = []  # used in the worker's process
        self._addresses: list[str] = []

    def evaluate(
        self,
        box: Box,
        attempt: Attempt,
        limits: Limits,
        publish: Publish,
        record: Callable[[Outcome], None],
    ) -> Outcome:
        """Evaluate one attempt on all its machines."""
        assert attempt.share is not None, "the pool sets the share of each attempt"
        machines = attempt.share.machines
        started = time.time()
        try:
            self._start_helpers(box, machines)
        except (RayError, GetTimeoutError) as error:
            self._kill_helpers()
            message = f"the other machines did not start: {error}"
            return attempt.failure(kind_of(error), message, started, time.time(), worker_name())
        first = Machine(0, machines, tuple(self._addresses), free_port())
        unsaved = replace(attempt, trials=None)  # the output of rank 0 is that of the attempt
        running = {
            helper.evaluate.remote(box, unsaved, limits, replace(first, rank=rank)): rank
            for rank, helper in enumerate(self._helpers, start=1)
        }
        end_key = _end_key(self._campaign, attempt)
        others = _Others(attempt, started, self._addresses, running, end_key)

        def has_failed() -> bool:
            others.collect(_POLL_SECONDS)
            if others.failures:
                others.request_end()
            return bool(others.failures)

        try:
            with _end_when(has_failed, lambda: record(cause_of(others.failures))):
                objective = get_objective(box)
                outcome = evaluate(
                    objective, attempt, limits, is_expendable=True, publish=publish, machine=first
                )  # fmt: skip
            return with_saved_checkpoint(self._conclude(outcome, others), attempt)
        finally:
            internals.delete(end_key)

    def _conclude(self, outcome: Outcome, others: _Others) -> Outcome:
        """End the other ranks, and return the outcome of the attempt.

        The value of rank 0 counts if no other rank has failed before it ended, or if it was
        stopped: the others may have failed because their connections to it ended. Otherwise the
        attempt fails, with the cause of all failures.
        """
        if isinstance(outcome, TrialStopped) or (isinstance(outcome, TrialSucceeded) and not others.failures):
            # after a success the others are about to end too
            patience = END_SECONDS if isinstance(outcome, TrialSucceeded) else 0.0
            self._end_helpers(others, patience, END_SECONDS)
            return outcome
        patience = 0.0 if others.failures else CAUSE_SECONDS  # another failure may be the cause
        self._end_helpers(others, patience, NODE_SECONDS)
        for rank in others.running.values():  # their processes neither ended nor could be killed
            others.note(rank, FailureKind.NODE_LOST, "its machine does not respond", time.time())
        failures = [*others.failures]
        if isinstance(outcome, TrialFailed) and outcome.failure is not FailureKind.CANCELLED:
            failures.append(outcome)
        if not failures:  # SIGTERM came from outside
            message = "its process got SIGTERM"
            kind = FailureKind.WORKER_LOST
            return others.attempt.failure(kind, message, outcome.started, time.time(), worker_name())
        return cause_of(failures)

    def _end_helpers(self, others: _Others, patience: float, last_patience: float) -> None:
        """Wait `patience` seconds for the other ranks, then ask them to end, then kill them and
        wait for `last_patience` seconds."""
        others.collect_all(patience)
        if others.running:
            others.request_end()
            others.collect_all(HARD_END_SECONDS + 2.0 * _POLL_SECONDS)
        if others.running:
            self._kill_helpers()
            others.collect_all(last_patience)

    def _start_helpers(self, box: Box, machines: int) -> None:
        """Let a process on each other machine fetch the objective, after starting any missing
        processes. Raises RayError if a process does not start or cannot fetch it."""
        if not self._helpers:
            group = ray.util.get_current_placement_group()
            assert group is not None, "a worker that evaluates on several machines has a group"
            bundles = group.bundle_specs
            remote: Any = ray.remote(Helper)
            self._helpers = [
                remote.options(
                    num_cpus=bundles[rank].get("CPU", 0.0),
                    num_gpus=bundles[rank].get("GPU", 0.0),
                    memory=bundles[rank].get("memory"),
                    max_restarts=0,
                    max_task_retries=0,
                    scheduling_strategy=PlacementGroupSchedulingStrategy(group, rank),
                ).remote(self._campaign)
                for rank in range(1, machines)
            ]
        begun = [helper.begin.remote(box) for helper in self._helpers]
        self._addresses = [str(ray.util.get_node_ip_address()), *ray.get(begun, timeout=START_SECONDS)]

    def _kill_helpers(self) -> None:
        for helper in self._helpers:
            end_actor(helper, reaches_other_nodes=True)
        self._helpers = []
