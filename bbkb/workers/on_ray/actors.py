"""Worker actors: detached Ray actors that continue if the campaign's process dies, and the campaign's
pool of them.

A worker evaluates one attempt at a time. Ray ends a task together with the process that submitted
it, but completes a method call of a detached actor. The outcome is written into the ledger
(`bbkb.workers.on_ray.ledger`), where the next session finds it, as it finds the worker by its name.

A worker is created if no idle worker fits, and killed after a minute without work. The names end in
an index that starts at 1. The index of an ended worker is reused, because each name creates new
series of metrics. A worker process takes about a second to start, as does the session. So the first
workers start before the executor exists, and import the objective while the session is built.
"""

import contextlib
import functools
import itertools
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from bbkb.objectives.objective import HasPreparation
from bbkb.workers.evaluate import prepare
from bbkb.workers.messages import Attempt, Limits, Outcome, Share, TrialFailed, TrialStopped, TrialSucceeded
from bbkb.workers.on_ray import internals
from bbkb.workers.on_ray.crews import Box, Crew, Reference, get_objective
from bbkb.workers.on_ray.internals import NAMESPACE
from bbkb.workers.on_ray.ledger import Entry, HeldAttempt, Ledger
from bbkb.workers.on_ray.places import Capacity, Placement
from bbkb.workers.on_ray.reports import ReportSender

_LOGGER = logging.getLogger("bbkb.executor")


_TITLE = b"ray::"  # of the name of every worker process
_PROC = Path("/proc")


def end_actor(actor: Any, reaches_other_nodes: bool) -> None:
    """Kill `actor` and its process, even if it is suspended or hangs.

    `ray.kill` asks the worker to exit. A process that was suspended (SIGSTOP, SIGTTIN) for more
    than half a minute has lost its connection. Ray lists it as dead, but it keeps its CPUs forever.
    SIGKILL ends a suspended process. So the process is also killed by its pid: directly on this
    node, or by a task without CPUs on another node.

    `reaches_other_nodes`: whether to kill a process on another node, too, if it does not respond to
    Ray. This takes a task on that node, so it is meant for workers that may hang.
    """
    process = internals.node_and_pid(actor)
    ray.kill(actor)
    if process is None:
        return
    home, pid = process
    if home == ray.get_runtime_context().get_node_id():
        kill_worker(pid)
    elif reaches_other_nodes and any(node["Alive"] and node["NodeID"] == home for node in ray.nodes()):
        # without waiting for the task: the node may not respond
        affinity = NodeAffinitySchedulingStrategy(home, soft=False)
        task: Any = ray.remote(kill_worker)
        task.options(name="bbkb end worker", num_cpus=0, max_retries=0, scheduling_strategy=affinity).remote(pid)


def kill_worker(pid: int) -> bool:
    """Send SIGKILL to this process if it is a Ray worker, and return whether it was sent. Its pid
    may have been reused; this is unknown if the system has no /proc."""
    with contextlib.suppress(OSError):
        if not _PROC.exists() or (_PROC / str(pid) / "cmdline").read_bytes().startswith(_TITLE):
            os.kill(pid, signal.SIGKILL)
            return True
    return False


_LOOKS = 20.0  # the number of checks during one lease
_LONGEST_LOOK_SECONDS = 60.0


class WorkerActor:
    """Evaluates for `campaign` under the name `name` with the processes of `crew`. Exits
    `keep_seconds` after the last renewal of the lease.

    Methods run one at a time, in the process's main thread, which the time-out's alarm needs. This
    is why Ray's concurrency groups are not used (with them, no method runs in the main thread), and
    why no method has to respond during an evaluation.
    """

    def __init__(self, name: str, campaign: str, keep_seconds: float, crew: Crew) -> None:
        self._name = name
        self._crew = crew
        self._campaign = campaign
        self._ledger = Ledger(campaign)
        self._node = ray.get_runtime_context().get_node_id()
        self._last: tuple[tuple[int, int], Outcome | None] = ((-1, 0), None)
        threading.Thread(target=self._watch_lease, args=(keep_seconds,), daemon=True).start()

    def __repr__(self) -> str:
        return self._name

    def prepare(self, objective: HasPreparation, limits: Limits) -> None:
        """Import the dependencies of the objective, while the session is built."""
        prepare(objective, limits)

    def evaluate(
        self,
        boxed_objective: Box,
        attempt: Attempt,
        limits: Limits,
        acknowledged: Sequence[tuple[int, int]],
    ) -> Outcome:
        """Evaluate an attempt, write its outcome into the ledger, and return it.

        The entries of the `acknowledged` attempts are removed from the ledger.
        """
        objective = get_objective(boxed_objective)
        for durable in acknowledged:
            self._tell(functools.partial(self._ledger.forget, *durable))
        self._crew.prepare(objective, limits)
        self._write(attempt, HeldAttempt(self._name, self._node, time.time()))
        identity = attempt.trial, attempt.attempt
        sender = ReportSender(self._campaign, *identity, attempt.can_be_stopped)
        with contextlib.closing(sender):
            record = functools.partial(self._write, attempt)
            outcome = self._crew.evaluate(boxed_objective, attempt, limits, sender, record)
        self._last = (identity, outcome)
        self._write(attempt, outcome)
        return outcome

    def outcome(self, trial: int, attempt: int) -> Outcome | None:
        """Return the outcome of this attempt if it was the last one. If an attempt is running, wait
        for its end first."""
        key, outcome = self._last
        return outcome if key == (trial, attempt) else None

    def _write(self, attempt: Attempt, entry: HeldAttempt | Outcome) -> None:
        self._tell(lambda: self._ledger.write(attempt.trial, attempt.attempt, entry))

    def _tell(self, write: Callable[[], None]) -> None:
        """Write into the ledger if Ray's head responds.

        An evaluation must not be lost because the head is unreachable: only a session that takes
        over at this moment would miss the entry and evaluate again.
        """
        try:
            write()
        except (ray.exceptions.RayError, OSError, RuntimeError) as error:
            print(f"bbkb: the ledger could not be written: {error}", file=sys.stderr, flush=True)

    def _watch_lease(self, keep_seconds: float) -> None:
        """Exit this process if the lease was not renewed for `keep_seconds`.

        Renewals that Ray's head cannot report are ignored.
        """
        last_sign: bytes | None = None
        since = time.monotonic()
        while time.monotonic() - since < keep_seconds:
            time.sleep(min(_LONGEST_LOOK_SECONDS, keep_seconds / _LOOKS))
            try:
                sign = self._ledger.sign_of_life()
            except (ray.exceptions.RayError, OSError, RuntimeError):
                continue
            if sign != last_sign:
                last_sign, since = sign, time.monotonic()
        self._tell(functools.partial(self._crew.release, self._name))
        os._exit(0)


# a running attempt of an earlier session: reference, trial, attempt, start on the worker's clock
Adopted: TypeAlias = tuple[Reference, int, int, float]

IDLE_SECONDS = 60.0
# for a new worker to start, before an idle one is killed to make room for it
PLACE_SECONDS = 30.0
_TOUCH_SECONDS = 20.0


@dataclass(eq=False, slots=True)
class Worker:
    """A worker actor of this campaign."""

    name: str  # the actor's name, which begins with `title_of` the campaign
    actor: Any  # Ray's handle
    share: Share | None = None  # its CPUs and GPUs; None if an earlier session made it: they are unknown
    has_begun: bool = False  # whether it is known to be running, not waiting for resources
    # the time of its creation, on the monotonic clock
    made: float = field(default_factory=time.monotonic)
    # the time since which it has had no attempt, on the monotonic clock
    idle_since: float = field(default_factory=time.monotonic)
    # (trial, attempt) of outcomes that it may delete; its next call passes them on
    acknowledged: list[tuple[int, int]] = field(default_factory=list)
    # its machine and process as its outcomes name them; None before its first outcome
    process: str | None = None


def title_of(campaign: str) -> str:
    """Return the prefix of the names of the campaign's workers and of their crew's resources."""
    return f"bbkb {campaign} worker "


class WorkerPool:
    """The worker actors of one campaign. The executor limits those that are busy to its slots."""

    def __init__(self, slots: int, placement: Placement) -> None:
        self.slots = slots  # the number of concurrent evaluations that fit into the cluster
        self.box: Box = []  # the objective of the workers; set before the first `start`
        self._placement = placement
        self._ledger = Ledger(placement.campaign)
        self._title = title_of(placement.campaign)
        self._remote: Any = ray.remote(WorkerActor)  # once: Ray exports each such object
        self._busy: dict[Reference, Worker] = {}  # by the reference of the attempt
        self._idle: list[Worker] = []  # sorted by idle time, the longest first
        # the workers of the ledger's entries; None if the worker has ended
        self._entries: dict[tuple[int, int], Worker | None] = {}
        self._next_touch = 0.0
        self._next_room = 0.0
        self.touch()

    def start_idle(self, count: int, objective: HasPreparation | None) -> None:
        """Create workers before there are attempts for them, and let them prepare `objective`.

        Does nothing if the campaign already has workers, which may hold attempts.
        """
        if self._find():
            return
        for _ in range(count):
            worker = self._make(self._placement.share_of(None))
            if objective is not None:
                worker.actor.prepare.remote(objective, self._placement.limits)
            self._idle.append(worker)

    def start(self, attempt: Attempt) -> Reference:
        """Start the attempt on a worker, and return a reference to its outcome."""
        share = self._placement.share_of(attempt)
        attempt = replace(attempt, share=share)
        worker = self._take(share)
        evaluate = worker.actor.evaluate.options(name=f"{self._placement.label} #{attempt.trial}")
        limits = self._placement.limits
        reference: Reference = evaluate.remote(self.box, attempt, limits, tuple(worker.acknowledged))
        worker.acknowledged.clear()
        self._busy[reference] = worker
        self._entries[attempt.trial, attempt.attempt] = worker
        return reference

    def ask(self, reference: Reference, trial: int, attempt: int) -> Reference:
        """Return another reference to the same outcome, after the connection to the worker broke.

        It resolves to None if the worker has not evaluated the attempt.
        """
        worker = self._busy.pop(reference)
        again: Reference = worker.actor.outcome.remote(trial, attempt)
        self._busy[again] = worker
        return again

    def process(self, reference: Reference) -> str | None:
        """Return the machine and process of an attempt's worker; None before its first outcome."""
        return self._busy[reference].process

    def free(self, reference: Reference, process: str) -> None:
        """Mark the worker of an ended attempt as idle. `process`: the outcome's name for it."""
        worker = self._busy.pop(reference)
        worker.process = process
        worker.idle_since = time.monotonic()
        worker.has_begun = True
        self._idle.append(worker)

    def end(self, reference: Reference) -> None:
        """Kill the worker of an attempt. The worker may hang or be dead already."""
        self._end(self._busy.pop(reference), may_hang=True)

    def adopt(self, attempts: Mapping[int, int]) -> tuple[list[Outcome], list[Adopted]]:
        """Take over the workers of an earlier session: those with one of `attempts`, by trial.

        Its other workers are killed, unless this pool created them. Return the outcomes of ended
        attempts, and the attempts that are running.
        """
        finished: list[Outcome] = []
        held: dict[str, tuple[tuple[int, int], float]] = {}  # by worker: the attempt and its start
        for key in attempts.items():
            entry = self._ledger.read(*key)
            if isinstance(entry, TrialSucceeded | TrialFailed | TrialStopped):
                finished.append(entry)
                self._entries[key] = None
            elif isinstance(entry, HeldAttempt) and entry.started >= held.get(entry.worker, (key, 0.0))[1]:
                # if two successive workers have the same name, only the later one can be running
                held[entry.worker] = (key, entry.started)
        running: list[Adopted] = []
        actors = self._find()
        created = {worker.name for worker in self._idle}
        in_use = created | (actors.keys() & held.keys())
        self._placement.crew.release_unused(self._title, in_use)
        for name, actor in actors.items():
            if name in held:
                key, started = held[name]
                worker = Worker(name, actor, has_begun=True)
                reference: Reference = actor.outcome.remote(*key)
                self._busy[reference] = worker
                self._entries[key] = worker
                running.append((reference, *key, started))
            elif name not in created:
                end_actor(actor, reaches_other_nodes=True)
        return finished, running

    def acknowledge(self, attempts: Iterable[tuple[int, int]]) -> None:
        """Remove the entries of these attempts: by the next call of their worker, or now if the
        worker has ended."""
        for attempt in attempts:
            if attempt in self._entries:
                worker = self._entries.pop(attempt)
                if worker is None:
                    self._ledger.forget(*attempt)
                else:
                    worker.acknowledged.append(attempt)

    def last_entry(self, trial: int, attempt: int) -> Entry | None:
        """Return the ledger's entry of an attempt; None if no worker has begun it."""
        return self._ledger.read(trial, attempt)

    def is_alive(self, reference: Reference) -> bool:
        """Return whether the worker of this attempt has a process."""
        return internals.node_and_pid(self._busy[reference].actor) is not None

    def end_idle_workers(self, idle_seconds: float = IDLE_SECONDS) -> None:
        """Kill workers idle for `idle_seconds`, and renew the lease of the others."""
        now = time.monotonic()
        while self._idle and now - self._idle[0].idle_since >= idle_seconds:
            self._end(self._idle.pop(0))
        while self._idle and len(self._busy) + len(self._idle) > self.slots:
            self._end(self._idle.pop(0))  # after the death of a node, its slot is needed
        if self._idle and now >= self._next_room:
            # an idle worker for each new one that is waiting for resources: other users of the cluster may
            # have taken some, and an attempt would wait behind the idle worker
            self._next_room = now + PLACE_SECONDS
            waiting = 0
            for attempt, new in self._entries.items():
                if new is None or new.has_begun or now - new.made < PLACE_SECONDS:
                    continue
                new.has_begun = self.last_entry(*attempt) is not None
                waiting += not new.has_begun
            for worker in self._idle[:waiting]:
                self._idle.remove(worker)
                self._end(worker)
        if now >= self._next_touch:
            self.touch()

    def touch(self) -> None:
        """Renew the lease of the workers; they exit when it expires."""
        self._next_touch = time.monotonic() + _TOUCH_SECONDS
        self._ledger.touch(repr(time.time()))

    def close(self, leave_running: bool) -> None:
        """Kill all workers and clear the ledger, or leave the workers for another session."""
        if not leave_running:
            for worker in (*self._busy.values(), *self._idle):
                self._kill(worker, may_hang=False)
            self._ledger.clear()
        for collection in (self._busy, self._idle, self._entries):
            collection.clear()
        self.box = []

    def _take(self, share: Share) -> Worker:
        """Return an idle worker that has reserved enough resources, or a new one."""
        if self._placement.largest is not None or not self._placement.crew.is_reusable:
            # idle workers with another share hold resources that this attempt needs
            for worker in [worker for worker in self._idle if worker.share != share]:
                self._idle.remove(worker)
                self._end(worker)
        is_unlimited = self._placement.limits.memory_bytes is None
        fitting = [one for one in self._idle if is_unlimited or one.share is not None]
        if fitting:
            worker = fitting[-1]  # busy last, so that the others reach their idle limit
            self._idle.remove(worker)
            return worker
        if len(self._busy) + len(self._idle) >= self.slots and self._idle:
            self._end(self._idle.pop(0))
        return self._make(share)

    def _make(self, share: Share) -> Worker:
        """Create a worker with these resources, under the first free name."""
        names = {worker.name for worker in (*self._busy.values(), *self._idle)}
        placement, crew = self._placement, self._placement.crew
        need = placement.need(share)
        for name in (f"{self._title}{index}" for index in itertools.count(1)):
            if name in names:
                continue
            with contextlib.suppress(ValueError):  # the name is taken: the old worker has not quite ended
                options = crew.reserve(name, need)
                try:
                    actor = self._remote.options(
                        name=name,
                        namespace=NAMESPACE,
                        lifetime="detached",
                        max_restarts=0,
                        max_task_retries=0,
                        **options,
                    ).remote(name, placement.campaign, placement.keep_seconds, crew)
                except ValueError:
                    crew.release(name)
                    raise
                _LOGGER.debug("started worker %s", name)
                return Worker(name, actor, share)
        raise AssertionError("the indices are infinite")

    def _find(self) -> dict[str, Any]:
        """Return the campaign's worker actors that are alive, by name."""
        actors = {}
        for listed in ray.util.list_named_actors(all_namespaces=True):
            name = listed["name"]
            if listed["namespace"] == NAMESPACE and name.startswith(self._title):
                with contextlib.suppress(ValueError):  # it has died since it was listed
                    actors[name] = ray.get_actor(name, NAMESPACE)
        return actors

    def _kill(self, worker: Worker, may_hang: bool) -> None:
        end_actor(worker.actor, reaches_other_nodes=may_hang)
        self._placement.crew.release(worker.name)
        _LOGGER.debug("ended worker %s", worker.name)

    def _end(self, worker: Worker, may_hang: bool = False) -> None:
        """Kill a worker, and remove the ledger entries that it should have removed. Unacknowledged
        outcomes remain in the ledger."""
        self._kill(worker, may_hang)
        for attempt in worker.acknowledged:
            self._ledger.forget(*attempt)
        for attempt, writer in self._entries.items():
            if writer is worker:
                self._entries[attempt] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstWorkers:
    """The workers to start early."""

    count: int  # the number of workers
    slots: int  # the largest number of concurrent evaluations of the campaign
    placement: Placement  # the resources of one evaluation
    # the objective that each worker prepares; None if it needs no preparation
    objective: HasPreparation | None


@dataclass(frozen=True, slots=True)
class Allocation:
    """The capacity and the workers of a campaign, for an executor."""

    capacity: Capacity
    pool: WorkerPool

    def release(self) -> None:
        """Kill the workers and release the capacity, unless an executor takes them over."""
        self.pool.end_idle_workers(0.0)
        self.capacity.close()


def allocate(slots: int, placement: Placement) -> Allocation:
    """Return capacity for at most `slots` evaluations, without workers."""
    capacity = Capacity(placement, slots)
    return Allocation(capacity, WorkerPool(capacity.slots, placement))


def start_workers(first: FirstWorkers) -> Allocation:
    """Start as many of these workers as there are slots, without waiting for them."""
    allocation = allocate(first.slots, first.placement)
    allocation.pool.start_idle(min(first.count, allocation.capacity.slots), first.objective)
    return allocation
