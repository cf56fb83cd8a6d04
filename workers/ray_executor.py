"""Evaluates on a Ray cluster: one Ray task an attempt, no Ray type and no Ray exception beyond this file.

Ray's own retries are off: the campaign alone counts attempts. The outcome is built on the worker (`workers.evaluate`),
so nothing an objective raises has to be pickled; what Ray itself raises means that the worker, the node or the way
there failed, and becomes a `Failure` here. A reference that never resolves (a silent node) is given up by lease.
"""

import re
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import ray
from ray.exceptions import (
    OutOfMemoryError,
    RayError,
    RayTaskError,
    RuntimeEnvSetupError,
    TaskCancelledError,
    WorkerCrashedError,
)

from objectives.objective import Objective
from workers.evaluate import MESSAGE_CHARACTERS, evaluate, grace_seconds, printable, summary_of
from workers.executor import ExecutorError
from workers.messages import Failure, FailureKind, Limits, Outcome, Success, Trial

START_UP_SECONDS = 30.0  # what a lease allows for starting a worker process and unpickling the objective there
_UNKNOWN = "unknown"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")

# The first row that fits counts: Ray derives one exception from both TaskCancelledError and RayTaskError.
_KINDS: tuple[tuple[type[RayError], FailureKind], ...] = (
    (OutOfMemoryError, FailureKind.OUT_OF_MEMORY),
    (TaskCancelledError, FailureKind.CANCELLED),
    (RuntimeEnvSetupError, FailureKind.ERROR),
    (RayTaskError, FailureKind.ERROR),  # the objective cannot be unpickled or imported there
    (RayError, FailureKind.WORKER_LOST),  # crashed, node died, object lost, unschedulable, …
)


@dataclass(frozen=True, slots=True)
class _Attempt:
    """An attempt that Ray has. `since` (monotonic clock) tells its age, `started` (wall clock) stamps its failure."""

    trial: Trial
    since: float
    started: float

    def age_seconds(self) -> float:
        """How long Ray has had it."""
        return time.monotonic() - self.since


class RayExecutor:
    """At most `slots` evaluations of `cpus` and `gpus` logical units each, on the cluster this process is connected to.

    More attempts than that wait here and not in Ray's queue, since a cluster with room would run them all at once.
    `task_name` is what the Ray dashboard shows: one name a campaign, since each distinct name becomes a metric series.
    The objective is put into the object store once; its arrays reach the workers without a copy, and each worker
    process unpickles it once. Use it from one thread. Raises ExecutorError when the objective cannot be pickled or no
    node can ever hold one evaluation.
    """

    def __init__(
        self, objective: Objective, slots: int, cpus: float, gpus: float, limits: Limits, task_name: str
    ) -> None:
        if slots < 1:
            raise ExecutorError(f"workers.count must be >= 1, got {slots}")
        _check_feasible({"CPU": cpus, "GPU": gpus, "memory": float(limits.memory_bytes or 0)})
        self._slots = slots
        self._limits = limits
        self._objective = _put(objective)
        self._remote: Any = ray.remote(_evaluate_remotely).options(
            name=task_name,
            num_cpus=cpus,
            num_gpus=gpus,
            memory=limits.memory_bytes,
            max_retries=0,
            retry_exceptions=False,
        )
        self._queue: OrderedDict[int, Trial] = OrderedDict()  # by trial id, in the order submitted
        self._running: dict[Any, _Attempt] = {}  # by reference, the oldest first; at most `slots`
        self._references: dict[int, Any] = {}  # of what runs, by trial id
        self._outcomes: list[Outcome] = []  # not handed out yet

    @property
    def slots(self) -> int:
        """Evaluations at the same time, when the cluster has room for them."""
        return self._slots

    def submit(self, trials: Sequence[Trial]) -> None:
        """Hand these attempts to Ray, as far as there are slots."""
        self._queue.update((trial.id, trial) for trial in trials)
        self._start()

    def next_outcomes(self, timeout: float | None) -> list[Outcome]:
        """All outcomes that are there; waits up to `timeout` seconds for the first."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._running:
            self._collect(0.0 if self._outcomes else self._patience_seconds(deadline))
            self._expire()
            if self._outcomes or (deadline is not None and time.monotonic() >= deadline):
                break
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def cancel(self, trials: Iterable[int]) -> None:
        """Kill the workers of these attempts; those that are over already keep their outcome."""
        chosen = dict.fromkeys(trials)
        now = time.time()
        for trial in [self._queue.pop(id_) for id_ in chosen if id_ in self._queue]:
            self._outcomes.append(
                Failure(trial.id, trial.attempt, FailureKind.CANCELLED, "cancelled", now, now, _UNKNOWN)
            )
        running = [self._references[id_] for id_ in chosen if id_ in self._references]
        if running:
            _over, going = ray.wait(running, num_returns=len(running), timeout=0)
            for reference in going:
                self._give_up(reference, FailureKind.CANCELLED, "cancelled")

    def now(self) -> float:
        """Wall-clock seconds since the epoch. Outcomes are stamped by the worker's clock."""
        return time.time()

    def close(self) -> None:
        """Kill what is in flight and let go of the objective in the object store."""
        if ray.is_initialized():  # ray.cancel would start a new Ray otherwise
            for reference in self._running:
                ray.cancel(reference, force=True)
        for held in (self._queue, self._running, self._references, self._outcomes):
            held.clear()
        self._objective = None

    def _start(self) -> None:
        """Give Ray what waits here, as far as there are slots."""
        while self._queue and len(self._running) < self._slots:
            _, trial = self._queue.popitem(last=False)
            reference = self._remote.remote([self._objective], trial, self._limits)
            self._running[reference] = _Attempt(trial, time.monotonic(), time.time())
            self._references[trial.id] = reference

    def _collect(self, patience_seconds: float | None) -> None:
        """Take in every result that is there, waiting for the first of them."""
        ready, rest = ray.wait(list(self._running), num_returns=1, timeout=patience_seconds)
        if ready and rest:
            ready += ray.wait(rest, num_returns=len(rest), timeout=0)[0]
        for reference, result in zip(ready, _fetched(ready), strict=True):
            attempt = self._running[reference]
            self._settle(reference, self._lost(attempt, result) if isinstance(result, RayError) else result)

    def _settle(self, reference: Any, outcome: Outcome) -> None:
        """This attempt is over; a reference that resolves later is not looked at any more."""
        self._outcomes.append(outcome)
        del self._running[reference]
        del self._references[outcome.trial]
        self._start()

    def _lost(self, attempt: _Attempt, error: RayError) -> Failure:
        """What Ray raised, as a failure."""
        limit = self._limits.timeout_seconds
        is_late = limit is not None and attempt.age_seconds() >= limit + grace_seconds(limit)
        if isinstance(error, WorkerCrashedError) and is_late:
            # The hard deadline ends the worker's process, and a process that ends is all Ray sees. A worker that
            # crashed by itself after a start this late is taken for one, too.
            message = f"no result within timeout_seconds = {limit:g}, nor when told to stop: its worker was ended"
            return _failure(attempt, FailureKind.TIMEOUT, message)
        kind = next(kind for exception, kind in _KINDS if isinstance(error, exception))
        return _failure(attempt, kind, _described(error))

    def _give_up(self, reference: Any, kind: FailureKind, message: str) -> None:
        """Kill an attempt and settle it at once: its reference may never resolve."""
        ray.cancel(reference, force=True)
        self._settle(reference, _failure(self._running[reference], kind, message))

    def _lease_seconds(self) -> float | None:
        """How old an attempt may get. On the worker both deadlines must have fallen by then."""
        limit = self._limits.timeout_seconds
        return None if limit is None else limit + 2.0 * grace_seconds(limit) + START_UP_SECONDS

    def _expire(self) -> None:
        """Give up attempts whose lease is over: their node has fallen silent, or they never got a place."""
        lease = self._lease_seconds()
        if lease is None:
            return
        while self._running and (oldest := next(iter(self._running.items())))[1].age_seconds() > lease:
            message = f"nothing was heard of it for {lease:g} s: its node is unreachable, or the cluster has no room"
            self._give_up(oldest[0], FailureKind.WORKER_LOST, message)

    def _patience_seconds(self, deadline: float | None) -> float | None:
        """How long to wait for a result: until `deadline`, or until the oldest lease is over."""
        lease = self._lease_seconds()
        patience = [] if deadline is None else [deadline - time.monotonic()]
        if lease is not None:
            patience.append(lease - next(iter(self._running.values())).age_seconds())
        return max(0.0, min(patience)) if patience else None


def _evaluate_remotely(boxed_objective: list[Any], trial: Trial, limits: Limits) -> Outcome:
    """What runs on the worker, whose process may die for it.

    The reference comes in a list because Ray would fetch and unpickle a bare one for every task: a third of the
    throughput of cheap evaluations, and whatever an objective loads when first used would be loaded each time.
    """
    return evaluate(_objective(boxed_objective[0]), trial, limits, is_expendable=True)


@lru_cache(maxsize=1)
def _objective(reference: Any) -> Objective:
    """The objective in this worker process, the same for one evaluation after the other."""
    objective: Objective = ray.get(reference)
    return objective


def _fetched(references: list[Any]) -> list[Success | Failure | RayError]:
    """Each one's result or what Ray raises for it; all at once in the common case that nothing was raised."""
    try:
        return list(ray.get(references))
    except RayError:
        return [_fetched_one(reference) for reference in references]


def _fetched_one(reference: Any) -> Success | Failure | RayError:
    try:
        result: Success | Failure = ray.get(reference)
    except RayError as error:
        return error
    return result


def _described(error: RayError) -> str:
    """What Ray says of it; led by what the code on the worker raised, if that is what happened."""
    text = printable(_COLOUR.sub("", str(error))).strip()
    if not isinstance(error, RayTaskError):
        return f"{type(error).__name__}: {text}"[:MESSAGE_CHARACTERS]
    summary = summary_of(error.cause)
    return f"{summary}\n{text[-(MESSAGE_CHARACTERS - len(summary) - 1) :]}"


def _failure(attempt: _Attempt, kind: FailureKind, message: str) -> Failure:
    """A failure that the worker could not report itself, so its name is not known."""
    trial, now = attempt.trial, time.time()
    return Failure(trial.id, trial.attempt, kind, message, min(now, attempt.started), now, _UNKNOWN)


def _put(objective: Objective) -> Any:
    try:
        return ray.put(objective)
    except Exception as error:  # pickling runs the objective's own code, which may raise anything
        raise ExecutorError(
            f"an objective must be picklable to reach Ray's workers, got {type(objective).__name__}: {error}; "
            "open files, connections and locks in evaluate(), not before"
        ) from error


def _check_feasible(request: Mapping[str, float]) -> None:
    """Refuse what no node can ever hold: Ray would queue it for ever, without a word."""
    wanted = {name: amount for name, amount in request.items() if amount > 0.0}
    alive = [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]  # Ray does not say
    nodes: list[dict[str, float]] = [node["Resources"] for node in alive]
    if any(all(node.get(name, 0.0) >= amount for name, amount in wanted.items()) for node in nodes) or _can_grow():
        return
    largest = {name: max((node.get(name, 0.0) for node in nodes), default=0.0) for name in wanted}
    raise ExecutorError(
        f"one evaluation must fit on one node, got {_listed(wanted)}; the {len(nodes)} nodes of this cluster have at "
        f"most {_listed(largest)}: lower workers.cpus, workers.gpus or workers.memory_gb, or join a larger cluster"
    )


def _listed(resources: Mapping[str, float]) -> str:
    texts = (
        f"memory {amount / 2**30:.3g} GiB" if name == "memory" else f"{name} {amount:g}"
        for name, amount in resources.items()
    )
    return ", ".join(texts)


def _can_grow() -> bool:
    """Whether an autoscaler watches this cluster: it may add a larger node. Ray tells only by this private door."""
    configuration = ray._private.state.state.get_cluster_config()
    return configuration is not None and bool(configuration.node_group_configs)
