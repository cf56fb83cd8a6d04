"""The attempts in flight: they were passed to Ray and have no outcome yet."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

import ray
from ray.exceptions import RayError

from bbkb.workers.messages import Attempt, FailureKind, Outcome, TrialFailed
from bbkb.workers.on_ray.actors import WorkerPool
from bbkb.workers.on_ray.failures import fetch
from bbkb.workers.on_ray.objective import Reference
from bbkb.workers.on_ray.tasks import RayTasks

UNKNOWN_WORKER = "unknown"

# A reference resolves to an outcome, to an error that Ray raises, or to None if the worker never
# received the attempt.
Result: TypeAlias = Outcome | RayError | None


@dataclass(slots=True, kw_only=True)
class RunningAttempt:
    """An attempt in flight."""

    trial: int  # the trial's index
    attempt: int  # the attempt's number within its trial
    runner: RayTasks | WorkerPool  # the tasks or the worker pool that runs it
    # the attempt as it was submitted; None if it was adopted from an earlier session
    request: Attempt | None = None
    # the machine and process of its worker, for the message of a failure
    worker: str = UNKNOWN_WORKER
    # the time of its submission, on the monotonic clock
    submitted: float = field(default_factory=time.monotonic)
    # the wall-clock time of its submission, for the message of a failure
    started: float = field(default_factory=time.time)
    # since when its node may be dead, on the monotonic clock; None if no node has died
    suspected: float | None = None
    # monotonic times of the first checks that saw that its worker actor had begun it, and that the
    # worker was alive without having begun it
    begun: float | None = None
    alive: float | None = None

    @property
    def is_task(self) -> bool:
        """Whether the attempt runs as a task, not on a worker actor."""
        return isinstance(self.runner, RayTasks)

    def age_seconds(self) -> float:
        """Return the seconds since the attempt was submitted to Ray."""
        return time.monotonic() - self.submitted

    def failure(self, kind: FailureKind, message: str) -> TrialFailed:
        """Return a failure on behalf of the worker."""
        now = time.time()
        started = min(now, self.started)
        return TrialFailed(
            trial=self.trial,
            attempt=self.attempt,
            failure=kind,
            message=message,
            started=started,
            finished=now,
            worker=self.worker,
        )


@dataclass(frozen=True, slots=True)
class Loss:
    """An attempt to give up: its reference may never resolve."""

    reference: Reference  # the attempt's reference
    kind: FailureKind  # the kind of its failure
    message: str  # the reason, for the user


class InFlight(dict[Reference, RunningAttempt]):
    """The attempts in flight by reference, oldest first. The reference of an attempt that was
    removed is ignored if it resolves later."""

    def by_trial(self) -> dict[int, int]:
        """Return the attempt in flight of each trial."""
        return {attempt.trial: attempt.attempt for attempt in self.values()}

    def replace(self, reference: Reference, successor: Reference) -> None:
        """Change the reference of an attempt, which keeps its position."""
        names = {reference: successor}
        renamed = {names.get(key, key): attempt for key, attempt in self.items()}
        self.clear()
        self.update(renamed)

    def waiting_for_actors(self) -> Iterator[Reference]:
        """Yield the attempts that wait for their worker actors to begin, newest first. The caller
        may remove them."""
        for reference, attempt in reversed(list(self.items())):
            if attempt.request is None or not isinstance(attempt.runner, WorkerPool):
                continue
            if attempt.runner.last_entry(attempt.trial, attempt.attempt) is None:
                yield reference

    def unresolved(self, trials: Iterable[int]) -> list[Reference]:
        """Return the unresolved references of these trials."""
        by_trial = {attempt.trial: reference for reference, attempt in self.items()}
        references = [by_trial[trial] for trial in trials if trial in by_trial]
        if not references:
            return []
        _resolved, unresolved = ray.wait(references, num_returns=len(references), timeout=0)
        return list(unresolved)

    def wait(self, seconds: float) -> Iterable[tuple[Reference, Result]]:
        """Wait up to `seconds` for the first result, and return all available results."""
        if not self:  # every attempt is queued while other campaigns take their turns
            time.sleep(seconds)
            return []
        ready, unready = ray.wait(list(self), num_returns=1, timeout=seconds)
        if ready and unready:
            ready += ray.wait(unready, num_returns=len(unready), timeout=0)[0]
        return zip(ready, fetch(ready), strict=True)
