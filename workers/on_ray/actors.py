"""Long evaluations: a pool of detached worker actors, which continue when the campaign's process
dies.

A worker evaluates one attempt at a time. It is made when no idle one is there, ended when it has
been idle for a minute, and found again by its name and by the ledger (`workers.on_ray.ledger`)
after the campaign's process has died. Names are numbered from 1, and the number of a worker that is
gone is used again: each name makes series of metrics.
"""

import itertools
import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from objectives.objective import HasPreparation
from workers.messages import Attempt, Limits, Outcome, Share
from workers.on_ray.groups import groups_named, make_group, remove_group, sweep_groups
from workers.on_ray.ledger import NAMESPACE, HeldAttempt, Ledger, RefusedAttempt
from workers.on_ray.objective import Box, Reference
from workers.on_ray.places import Placement, memory_request, need_of
from workers.on_ray.processes import end_actor, process_of
from workers.on_ray.worker_actor import WorkerActor

_LOGGER = logging.getLogger("bbkb.executor")

IDLE_SECONDS = 60.0
PLACE_SECONDS = 30.0  # for a new worker to start, before an idle one is ended to free its place
_TOUCH_SECONDS = 20.0


@dataclass(eq=False, slots=True)
class _Worker:
    """A worker actor of this campaign."""

    name: str  # of the actor, which begins with the campaign's
    actor: Any  # Ray's handle
    memory: int | None  # that it asked Ray for, in bytes; None where it is not limited, 0 when unknown
    share: Share | None = None  # its CPUs and GPUs; None when unknown
    has_begun: bool = False  # whether it is known to have got its place
    group: PlacementGroup | None = None  # its room, where an evaluation takes several machines
    made: float = field(default_factory=time.monotonic)  # when it was started, on the monotonic clock
    # since when it has no attempt, on the monotonic clock
    idle_since: float = field(default_factory=time.monotonic)
    # attempts (trial, attempt) whose outcomes it may delete; it is told with its next attempt
    acknowledged: list[tuple[int, int]] = field(default_factory=list)


class WorkerPool:
    """The worker actors of one campaign. The executor limits the busy ones to its slots."""

    def __init__(self, slots: int, limits: Limits, placement: Placement) -> None:
        self._box: Box = []
        self.slots = slots  # evaluations at the same time; follows the size of the cluster
        self._limits = limits
        self._placing = placement
        self._ledger = Ledger(placement.campaign)
        self._busy: dict[Reference, _Worker] = {}  # by the reference to what it evaluates
        self._idle: list[_Worker] = []  # the longest idle first
        self._noted: dict[tuple[int, int], _Worker | None] = {}  # this campaign's entries in the ledger, their workers
        self._next_touch = 0.0
        self._next_room = 0.0
        self._remote: Any = ray.remote(WorkerActor)  # once, because Ray exports each such object again
        self.touch()

    def provide(self, box: Box) -> None:
        """Give workers this objective; comes before the first `start`."""
        self._box = box

    def start_idle(self, count: int, objective: HasPreparation | None) -> None:
        """Make this many workers before there are attempts for them, and let them prepare
        `objective`; none where the campaign has workers already, which may hold attempts."""
        if any(self._find_workers()):
            return
        for _ in range(count):
            worker = self._make_worker(memory_request(self._limits, 1.0), self._placing.share_of(None))
            if objective is not None:
                worker.actor.prepare.remote(objective, self._limits)
            self._idle.append(worker)

    def end_idle(self) -> None:
        """End the workers that have nothing to do."""
        while self._idle:
            self._kill(self._idle.pop())

    def start(self, attempt: Attempt) -> Reference:
        """Return a reference to its outcome, on an idle worker that has asked for enough memory, or
        on a new one."""
        share = self._placing.share_of(attempt)
        if self._placing.has_group(share):
            attempt = replace(attempt, share=share)
        worker = self._take_worker(memory_request(self._limits, attempt.memory_factor), share)
        acknowledged, worker.acknowledged = worker.acknowledged, []
        evaluate = worker.actor.evaluate.options(name=self._placing.label)
        reference: Reference = evaluate.remote(self._box, attempt, self._limits, acknowledged)
        self._busy[reference] = worker
        self._noted[attempt.trial, attempt.attempt] = worker
        return reference

    def ask(self, reference: Reference, trial: int, attempt: int) -> Reference:
        """Return another reference to the same outcome, for when Ray lost sight of the call but not
        of the worker.

        It resolves to None when the worker has not evaluated that attempt.
        """
        worker = self._busy.pop(reference)
        again: Reference = worker.actor.outcome.remote(trial, attempt)
        self._busy[again] = worker
        return again

    def free(self, reference: Reference) -> None:
        """Make the worker idle whose evaluation has ended; the worker is well."""
        worker = self._busy.pop(reference)
        worker.idle_since, worker.has_begun = time.monotonic(), True
        self._idle.append(worker)

    def end(self, reference: Reference) -> None:
        """Kill the worker that evaluates it, which may hang, or forget one that died by itself."""
        self._kill(self._busy.pop(reference), may_hang=True)

    def adopt(self, attempts: Mapping[int, int]) -> tuple[list[Outcome], dict[Reference, tuple[int, int, HeldAttempt]]]:
        """Return what workers of an earlier session hold of these (trial → attempt): outcomes that
        are there, and references to those to come, with (trial, attempt, entry). The campaign's
        other workers are killed, unless this pool made them."""
        idle_names = {worker.name for worker in self._idle}
        entries = {(trial, attempt): self._ledger.read(trial, attempt) for trial, attempt in attempts.items()}
        there = [entry for entry in entries.values() if entry and not isinstance(entry, HeldAttempt | RefusedAttempt)]
        self._noted.update(((outcome.trial, outcome.attempt), None) for outcome in there)
        begun = [(*key, entry) for key, entry in entries.items() if isinstance(entry, HeldAttempt)]
        # of two consecutive workers with the same name, the later one may run
        under_way = {item[2].worker: item for item in sorted(begun, key=lambda item: item[2].started)}
        running = {}
        title, workers = title_of(self._placing.campaign), dict(self._find_workers())
        sweep_groups(title, in_use={*(name for name in workers if name in under_way), *idle_names})
        groups = groups_named(title)
        for name, actor in workers.items():
            if name not in under_way:
                if name not in idle_names:
                    end_actor(actor, reaches_other_nodes=True)
                continue
            trial, attempt, _ = under_way[name]
            # its resources are not known, so it is replaced for any demand
            worker = _Worker(name, actor, memory=0, has_begun=True, group=groups.get(name))
            reference = actor.outcome.remote(trial, attempt)
            self._busy[reference] = worker
            self._noted[trial, attempt] = worker
            running[reference] = under_way[name]
        return there, running

    def acknowledge(self, attempts: Iterable[tuple[int, int]]) -> None:
        """Their entries may go: with the worker's next call, or at once where there is no such
        worker."""
        for attempt in attempts:
            if attempt in self._noted:
                worker = self._noted.pop(attempt)
                if worker is None:
                    self._ledger.forget(*attempt)
                else:
                    worker.acknowledged.append(attempt)

    def written_outcome(self, trial: int, attempt: int) -> Outcome | None:
        """Return the outcome that a worker has written before it died."""
        entry = self._ledger.read(trial, attempt)
        return None if isinstance(entry, HeldAttempt | RefusedAttempt) else entry

    def was_refused(self, trial: int, attempt: int) -> bool:
        """Return False: only processes of tasks refuse attempts."""
        return False

    def has_begun(self, trial: int, attempt: int) -> bool:
        """Return whether this attempt has got its place; it may be over since."""
        return self._ledger.read(trial, attempt) is not None

    def is_alive(self, reference: Reference) -> bool:
        """Return whether the worker of this attempt has a process."""
        return process_of(self._busy[reference].actor) is not None

    def evaluation_seconds(self, trial: int, attempt: int, age_seconds: float) -> float:
        """Return how long an attempt whose worker has died evaluated; none of its `age_seconds`
        when it had not started."""
        entry = self._ledger.read(trial, attempt)
        return time.time() - entry.started if isinstance(entry, HeldAttempt) else 0.0

    def node_of(self, trial: int, attempt: int) -> str | None:
        """Return Ray's id of the node where this attempt runs; None when it does not."""
        entry = self._ledger.read(trial, attempt)
        return entry.node if isinstance(entry, HeldAttempt) else None

    def end_idle_workers(self, idle_seconds: float = IDLE_SECONDS) -> None:
        """End workers that have been idle for so long, and touch the others. Cheap when there is
        nothing to do."""
        now = time.monotonic()
        while self._idle and now - self._idle[0].idle_since >= idle_seconds:
            self._kill(self._idle.pop(0))
        while self._idle and len(self._busy) + len(self._idle) > self.slots:
            self._kill(self._idle.pop(0))  # after the death of a node its place is needed
        if self._idle and now >= self._next_room:
            self._make_room(now)
        if now >= self._next_touch:
            self.touch()

    def touch(self) -> None:
        """Give the workers a sign of life."""
        self._next_touch = time.monotonic() + _TOUCH_SECONDS
        self._ledger.touch(repr(time.time()))

    def close(self, leave_running: bool) -> None:
        """End all workers and clear the ledger; or only let go of them."""
        if not leave_running:
            for worker in (*self._busy.values(), *self._idle):
                _end(worker, reaches_other_nodes=False)
            self._ledger.clear()
        for collection in (self._busy, self._idle, self._noted):
            collection.clear()
        self._box = []

    def _make_room(self, now: float) -> None:
        """End idle workers where new ones wait for a place: other users of the cluster may have
        taken some, and an attempt would wait behind an idle worker."""
        self._next_room = now + PLACE_SECONDS
        waiting = 0
        for (trial, attempt), worker in self._noted.items():
            if worker is not None and not worker.has_begun and now - worker.made >= PLACE_SECONDS:
                worker.has_begun = self.has_begun(trial, attempt)
                waiting += not worker.has_begun
        for worker in self._idle[:waiting]:
            self._idle.remove(worker)
            self._kill(worker)

    def _take_worker(self, memory: int | None, share: Share) -> _Worker:
        if self._placing.largest is not None or self._placing.has_group(
            share
        ):  # an idle worker of another share holds what this attempt needs
            for idle in [worker for worker in self._idle if worker.share != share]:
                self._idle.remove(idle)
                self._kill(idle)
        fitting = [worker for worker in self._idle if memory is None or (worker.memory or 0) >= memory]
        if fitting:
            worker = fitting[-1]  # the worker that was busy last, so that the others are idle long enough to be ended
            self._idle.remove(worker)
            return worker
        if len(self._busy) + len(self._idle) >= self.slots and self._idle:
            self._kill(self._idle.pop(0))
        return self._make_worker(memory, share)

    def _make_worker(self, memory: int | None, share: Share) -> _Worker:
        names = {worker.name for worker in (*self._busy.values(), *self._idle)}
        for number in itertools.count(1):
            name = f"{title_of(self._placing.campaign)}{number}"
            if name in names:
                continue
            group = None
            try:
                group = self._make_group(name, memory, share)
                actor = self._create(name, memory, share, group)
            except ValueError:  # the ended worker with this name still has it
                if group is not None:
                    remove_group(group)
                continue
            _LOGGER.debug("started worker %s", name)
            return _Worker(name, actor, memory, share, group=group)
        raise AssertionError("numbers do not end")

    def _make_group(self, name: str, memory: int | None, share: Share) -> PlacementGroup | None:
        """Return room on several machines, where an evaluation takes them. Raises ValueError when
        there is a group of that name."""
        if not self._placing.has_group(share):
            return None
        need = need_of(self._placing, self._limits, share)
        return make_group(name, replace(need, memory=float(memory or 0)), is_packed=self._placing.is_train)

    def _create(self, name: str, memory: int | None, share: Share, group: PlacementGroup | None) -> Any:
        """Return a new worker actor, in bundle 0 of its group. Raises ValueError when there is one
        of that name."""
        is_train = self._placing.is_train  # then all the room is for the trainer's workers
        return self._remote.options(
            name=name,
            namespace=NAMESPACE,
            lifetime="detached",
            max_restarts=0,
            max_task_retries=0,
            num_cpus=0.0 if is_train else share.cpus,
            num_gpus=0.0 if is_train else share.gpus,
            memory=None if is_train else memory,
            scheduling_strategy="DEFAULT" if group is None else PlacementGroupSchedulingStrategy(group, 0),
        ).remote(name, self._placing.campaign, self._placing.keep_seconds, is_train)

    def _kill(self, worker: _Worker, may_hang: bool = False) -> None:
        """Not before its outcomes were acknowledged does the ledger forget them: they are not the
        worker's to lose."""
        _end(worker, reaches_other_nodes=may_hang)
        _LOGGER.debug("ended worker %s", worker.name)
        for attempt in worker.acknowledged:
            self._ledger.forget(*attempt)
        for attempt, writer in self._noted.items():
            if writer is worker:
                self._noted[attempt] = None

    def _find_workers(self) -> Iterable[tuple[str, Any]]:
        """Yield the campaign's worker actors that are alive, by name."""
        for listed in ray.util.list_named_actors(all_namespaces=True):
            name = listed["name"]
            if listed["namespace"] == NAMESPACE and name.startswith(title_of(self._placing.campaign)):
                try:
                    yield name, ray.get_actor(name, NAMESPACE)
                except ValueError:  # it has died since it was listed
                    continue


def _end(worker: _Worker, reaches_other_nodes: bool) -> None:
    end_actor(worker.actor, reaches_other_nodes)
    if worker.group is not None:
        remove_group(worker.group)


def title_of(campaign: str) -> str:
    """Return what the names of the campaign's workers, and of their groups, begin with."""
    return f"bbkb {campaign} worker "
