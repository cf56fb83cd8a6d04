"""The central Ray actor: a process of its own around the driver, without logic of its own.

`run` works in one thread of the actor; `status` and `stop` are answered by others, also while the model computes.
"""

from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from objectives.objective import ObjectiveError
from orchestrator.assemble import Session, open_session
from orchestrator.errors import ActorLostError, BbkbError
from orchestrator.runs import Run, open_run
from orchestrator.status import Status

_STATUS_SECONDS = 5.0  # to wait for a snapshot that is only shown


class Orchestrator:
    """Builds a session out of a run's folder and runs it. Errors of ours come back as values: Ray would wrap them."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._session: Session | None = None
        self._early_stop: bool | None = None  # asked for before there was a session: whether at once

    def run(self) -> tuple[str, str] | BbkbError | ObjectiveError:
        """Run the session to its end: its outcome and reason."""
        try:
            self._session = open_session(open_run(Path(self._folder)))
            if self._early_stop is not None:
                self._session.driver.stop(self._early_stop)
            close = self._session.run()
        except (BbkbError, ObjectiveError) as error:
            return error
        return close.outcome, close.reason

    def status(self) -> Status | None:
        """A snapshot; None until the session is built."""
        return None if self._session is None else self._session.driver.status()

    def stop(self, now: bool) -> None:
        """Stop cleanly, or at once."""
        self._early_stop = now
        if self._session is not None:
            self._session.driver.stop(now)


class RemoteSession:
    """A session in the central actor, seen from the process that started it. Raises ActorLostError if it dies."""

    def __init__(self, run: Run) -> None:
        remote: Any = ray.remote(Orchestrator)
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        self._run = run
        self._actor: Any = remote.options(
            name=f"bbkb {run.name}",
            num_cpus=0,
            max_restarts=0,
            max_concurrency=4,
            scheduling_strategy=here,  # the run's folder is here
        ).remote(str(run.folder))
        self._end = self._actor.run.remote()

    def wait(self, seconds: float) -> bool:
        """Whether the session has ended, waiting up to `seconds` for it."""
        ready, _ = ray.wait([self._end], timeout=seconds)
        return bool(ready)

    def result(self) -> tuple[str, str]:
        """Outcome and reason of the session, or the error that ended it, raised."""
        end = self._get(self._end, None)
        if isinstance(end, Exception):
            raise end
        outcome, reason = end
        return outcome, reason

    def status(self) -> Status | None:
        """A snapshot; None while the actor is still building, or when it is too busy to answer."""
        try:
            status: Status | None = self._get(self._actor.status.remote(), _STATUS_SECONDS)
        except ray.exceptions.GetTimeoutError:
            return None
        return status

    def stop(self, now: bool) -> None:
        """Ask for a clean stop, or one at once."""
        self._actor.stop.remote(now)

    def _get(self, reference: Any, timeout: float | None) -> Any:
        try:
            return ray.get(reference, timeout=timeout)
        except ray.exceptions.RayActorError as error:
            raise ActorLostError(
                f"the central actor died ({type(error).__name__}). Every finished result is in the log: "
                f"bbkb resume {self._run.folder}"
            ) from error
