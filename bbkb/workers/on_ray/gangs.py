"""Evaluations of several processes that Ray places together: the ranks of an evaluation on several
machines, or the workers of a Ray Train trainer.

A campaign with `workers.machines` or `ray_train` imports this module, and gives one of the crews below to the
executor. In other campaigns, only an evaluation that starts a trainer imports it, to refuse the trainer.

Groups. The processes of a worker run in its placement group. The group is created before its worker,
completely or not at all, and has the worker's name. It is detached, so that an evaluation continues
without the process that requested it. It is removed with its worker. Ray kills the processes in a group
that is removed. A process that lost its machine makes the others fail.

Ranks. The worker actor is rank 0. It starts a helper on each other machine as its child, in the bundles 1,
2, … of the group. Ray ends them with the worker actor, so none remains when it dies. All ranks run the
same objective. If one of them fails, rank 0 asks all others to end: they receive SIGTERM, and are killed
if they have not ended `END_SECONDS` later. The request is an entry in Ray's key-value store, which each
helper reads in a thread, because its main thread evaluates.

Trainers. A trainer of Ray Train requests a placement group for its workers, whatever the evaluation holds.
Evaluations that hold processors could all wait forever for their trainers' groups, and Ray does not remove
the group of a killed trainer. With `TrainerCrew`, an evaluation therefore holds only its own group, in
which its trainer's workers run. All other functions may not start trainers.
`bbkb.workers.on_ray.trainer_check` enforces both: Ray Train imports it when a trainer starts, because an
environment variable names it (`bbkb.workers.on_ray.crews.refuse_trainers`).
"""

import contextlib
import importlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import ray
import ray.cloudpickle
from ray.exceptions import (
    GetTimeoutError,
    LocalRayletDiedError,
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RayActorError,
    RayError,
    RaySystemError,
    RayTaskError,
    WorkerCrashedError,
)
from ray.util.placement_group import (
    PlacementGroup,
    get_current_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from bbkb.objectives.objective import END_SECONDS, Machine, Objective, free_port
from bbkb.objectives.reference import modules_of_files
from bbkb.workers.evaluate import Publish, evaluate, with_saved_checkpoint, worker_name
from bbkb.workers.executor import ExecutorError
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
from bbkb.workers.on_ray.crews import Box, Crew, get_objective, refuse_trainers
from bbkb.workers.on_ray.in_flight import describe_error, kind_of
from bbkb.workers.packing import Need


class GroupCrew(Crew):
    """A crew whose worker actor is in bundle 0 of a placement group."""

    # after a failure, the processes on the other machines may be in a bad state
    is_reusable = False
    sharing = "SPREAD"  # Ray's strategy for bundles that may share a node

    def reserve(self, name: str, need: Need) -> Mapping[str, Any]:
        """Request a group for `need`, one bundle for each machine, without waiting for it."""
        strategy = "STRICT_SPREAD" if need.is_spread else self.sharing
        bundles = [need.resources()] * need.machines
        try:
            group = placement_group(bundles, strategy=strategy, name=name, lifetime="detached")
        except RaySystemError as error:
            if "already exists" not in str(error):
                raise
            raise ValueError(f"the name of a placement group must be new, got {name!r}") from error
        place = PlacementGroupSchedulingStrategy(group, 0)
        return {**super().reserve(name, need), "scheduling_strategy": place}

    def release(self, name: str) -> None:
        """Remove the group with this name, and kill its processes."""
        group = groups_named(name).get(name)
        if group is not None:
            remove_placement_group(group)

    def release_unused(self, title: str, in_use: Collection[str]) -> None:
        """Remove the groups whose names begin with `title`, except those named in `in_use`."""
        for name, group in groups_named(title).items():
            if name not in in_use:
                remove_placement_group(group)


def groups_named(prefix: str) -> dict[str, PlacementGroup]:
    """Return the groups whose names begin with `prefix`, by name, including pending ones.

    They are found in Ray's table, because Ray only finds a group by name in the namespace of the
    process that created it.
    """
    return {
        row["name"]: PlacementGroup(ray.PlacementGroupID(bytes.fromhex(row["placement_group_id"])))
        for row in placement_group_table().values()
        if row["name"].startswith(prefix) and row["state"] != "REMOVED"
    }


# the kinds of failures that cause others, the most informative first
_LOSSES = (FailureKind.NODE_LOST, FailureKind.OUT_OF_MEMORY, FailureKind.WORKER_LOST)
# Ray's exceptions for a lost process or node. Others (a time-out of `ray.get`, a full object store,
# …) are errors of the function that raises them.
_LOST = (
    RayActorError,
    WorkerCrashedError,
    OutOfMemoryError,
    NodeDiedError,
    LocalRayletDiedError,
    ObjectLostError,
)


def cause_of(failures: Sequence[TrialFailed]) -> TrialFailed:
    """Return the failure that caused the others: a lost machine or process, else the first."""
    in_order = sorted(failures, key=lambda failure: failure.finished)
    losses = [failure for kind in _LOSSES for failure in in_order if failure.failure is kind]
    return (losses or in_order)[0]


def kind_of_trainers_error(error: BaseException) -> FailureKind:
    """Classify an exception of a function that starts trainers.

    The kind is the loss of a process, a node or memory if Ray reports one in the exception or in
    its causes, else an error of the function.
    """
    # an exception of Ray Train contains those of its workers and its controller; a function's own
    # exception may have attributes with the same names and any contents
    kinds = set[FailureKind]()
    errors: list[object] = [error]
    visited: set[int] = set()
    while errors:
        part = errors.pop()
        if not isinstance(part, BaseException) or isinstance(part, RayTaskError) or id(part) in visited:
            continue
        visited.add(id(part))
        if isinstance(part, _LOST):
            kinds.add(kind_of(part))
        attributes = vars(part)
        failures = attributes.get("worker_failures")
        errors += failures.values() if isinstance(failures, Mapping) else ()
        errors += [attributes.get("controller_failure"), attributes.get("health_check_failure"), part.__cause__]
    return next((kind for kind in _LOSSES if kind in kinds), FailureKind.ERROR)


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
            group = get_current_placement_group()
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


_groups: list[PlacementGroup] = []  # at most one: the group for the trainers of this process


class TrainerCrew(GroupCrew):
    """A crew whose worker actor holds no processors: the trainer's workers use the whole group."""

    further_seconds = OTHERS_SECONDS
    sharing = "PACK"

    def __init__(self) -> None:
        """Raises ExecutorError if the installed Ray Train cannot use a given placement group."""
        try:
            importlib.import_module("bbkb.workers.on_ray.trainer_check")
        except RuntimeError as error:
            raise ExecutorError(str(error)) from error

    def reserve(self, name: str, need: Need) -> Mapping[str, Any]:
        """Request a group for the trainer's workers."""
        return {**super().reserve(name, need), "num_cpus": 0.0, "num_gpus": 0.0, "memory": None}

    def prepare(self, objective: Objective, limits: Limits) -> None:
        """Let this process start trainers in its own placement group. Their functions may come from
        the objective's file, which the trainer's workers cannot import."""
        group = get_current_placement_group()
        assert group is not None, "each worker of this crew has a group"
        _groups[:] = [group]
        super().prepare(objective, limits)
        for module in modules_of_files():
            ray.cloudpickle.register_pickle_by_value(module)

    def kind_of(self, error: BaseException) -> FailureKind:
        """Classify an exception: the loss of a process or node is not an error of the function."""
        return kind_of_trainers_error(error)


def group_for_trainers() -> PlacementGroup | None:
    """Return the placement group for this process's trainers; None if it may not start any."""
    return _groups[0] if _groups else None
