"""The coordinator, a Ray actor that runs the driver in its own process. It contains no logic.

It starts to work when it is created, so that Ray can restart it while no process watches: a new
process continues the log and, with it, the evaluations that worker actors hold. On a cluster that
was joined it is detached: a campaign whose driver died continues. After the session it keeps the
result for a watcher for a limited time, then removes itself.

This module imports little, so that the first workers are started before the second or two that the
rest takes.
"""

import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING

import ray

from orchestrator.errors import BbkbError, CampaignError
from workers.on_ray.allocation import FirstWorkers, start_workers

if TYPE_CHECKING:
    from orchestrator.campaign.status import Status
    from orchestrator.session.build import Parts
    from orchestrator.session.open import OpenSession

NAMESPACE = "bbkb"
ANSWER_KEPT_SECONDS = 60.0  # how long a watcher can ask how the session ended

End = tuple[str, str]  # of a session: its outcome and reason
Answer = End | BbkbError


class Orchestrator:
    """Builds a session out of a run's folder and runs it in a thread; methods are answered by
    others meanwhile.

    `folder` and `name` are the run's. `settings` (JSON) are those of the session; `length` is how
    long the log was when the actor was created: a session that was closed since then was closed by
    this actor before it restarted. Neither holds a password. `first`: workers to begin with.
    `gets_parts`: the creating process calls `take_parts`. Our errors are returned as values: Ray
    would wrap them.
    """

    def __init__(
        self,
        folder: str,
        name: str,
        settings: str,
        length: int,
        first: FirstWorkers | None,
        gets_parts: bool,
    ) -> None:
        self._folder = folder
        self._name = name
        self._settings = settings
        self._length = length
        self._first = first
        self._gets_parts = gets_parts
        self._parts: Future[list[ray.ObjectRef[Parts]]] = Future()
        self._session: OpenSession | None = None
        self._early_stop: bool | None = None  # before there is a session: whether to stop immediately
        self._answer: Answer | None = None
        self._ended = threading.Event()
        threading.Thread(target=self._live, name="session", daemon=True).start()

    def take_parts(self, parts: "list[ray.ObjectRef[Parts]]") -> None:
        """Take what the creating process has built of the settings, in a list, so that it is
        unpickled when the modules that it needs can be imported. It is no argument of the
        constructor, since a restart would need it, too."""
        self._parts.set_result(parts)

    def answer(self, seconds: float) -> Answer | None:
        """Return how the session ended, waiting up to `seconds` for it; None while it runs."""
        self._ended.wait(seconds)
        return self._answer

    def status(self) -> "Status | None":
        """Return a snapshot; None until the session is built."""
        return None if self._session is None else self._session.driver.status()

    def stop(self, now: bool) -> bool:
        """Stop cleanly, or at once. True: received."""
        self._early_stop = now or bool(self._early_stop)
        if self._session is not None:
            self._session.driver.stop(now)
        return True

    def _live(self) -> None:
        try:
            self._answer = self._run()
        except BbkbError as error:
            self._answer = error
        except BaseException as error:  # otherwise the watcher would not stop waiting
            self._answer = CampaignError(f"the central actor broke: {type(error).__name__}: {error}")
        self._ended.set()
        time.sleep(ANSWER_KEPT_SECONDS)
        from orchestrator.running.coordinator.handover import forget_store

        forget_store(self._name)
        ray.kill(ray.get_runtime_context().current_actor, no_restart=True)

    def _build_parts(self) -> "Parts | None":
        if not self._gets_parts:
            return None
        return ray.get(self._parts.result()[0])

    def _run(self) -> End:
        is_restarted = ray.get_runtime_context().was_current_actor_reconstructed
        allocation = None if self._first is None or is_restarted else start_workers(self._first)
        try:
            from orchestrator.running.coordinator.starting import (  # takes a second: workers start first
                Begun,
                begin,
                publish,
            )

            begun = begin(
                self._folder, self._settings, self._length, is_restarted, self._build_parts, allocation=allocation
            )
        except BaseException:
            if allocation is not None:
                allocation.release()
            raise
        if not isinstance(begun, Begun):
            return begun
        self._session = begun.session
        if self._early_stop is not None or begun.stops:
            self._session.driver.stop(bool(self._early_stop))
        publish(self._session, self._name)
        close = self._session.run()
        return close.outcome, close.reason
