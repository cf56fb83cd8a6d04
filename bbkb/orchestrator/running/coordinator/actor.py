"""The coordinator, a Ray actor that runs the driver in its own process.

The actor contains no logic of the campaign. It starts to work when it is created, so Ray can
restart it even if no process watches it: the new process resumes from the log and adopts the
evaluations that worker actors are still running. On a joined cluster the actor is detached, so the
campaign survives the program that started it. After the session, the actor keeps the result for a
watcher for a limited time, and then exits.

This module imports little, so that the first workers start before the remaining imports, which take
a second or two.
"""

import gc
import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING

import ray

from bbkb.orchestrator.errors import BbkbError, CampaignError
from bbkb.orchestrator.running.coordinator.starting import End
from bbkb.workers.on_ray.actors import FirstWorkers, start_workers

if TYPE_CHECKING:
    from bbkb.orchestrator.campaign.status import Status
    from bbkb.orchestrator.session.build import Parts
    from bbkb.orchestrator.session.open import OpenSession

ANSWER_KEPT_SECONDS = 60.0  # the time in which a watcher can fetch the result of the session

Answer = End | BbkbError


class Orchestrator:
    """Builds a session from a run's folder and runs it in a thread, while other threads answer
    method calls.

    `folder` and `name` are those of the run. `settings` are the settings of the session as text.
    `length` is the length of the log when the actor was created: a session that was closed after
    that position was closed by this actor before it restarted. No argument contains a password.
    `first` describes the workers that start first. `gets_parts`: whether the creating process calls
    `take_parts`. Errors of this project are returned as values, because Ray would wrap exceptions.
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
        # a stop requested before there is a session: whether it is immediate
        self._early_stop: bool | None = None
        self._answer: Answer | None = None
        self._ended = threading.Event()
        self._phase = ""
        self._phase_changed = threading.Condition()
        threading.Thread(target=self._live, name="session", daemon=True).start()

    def take_parts(self, parts: "list[ray.ObjectRef[Parts]]") -> None:
        """Receive the parts that the creating process has built, in a list, so that they are only
        unpickled when their modules can be imported. They are not an argument of the constructor,
        because a restart would need them again."""
        self._parts.set_result(parts)

    def answer(self, seconds: float) -> Answer | None:
        """Return the outcome of the session; None if the session is still open after `seconds`."""
        self._ended.wait(seconds)
        return self._answer

    def status(self) -> "Status | None":
        """Return a snapshot of the status; None until the session is built."""
        return None if self._session is None else self._session.driver.status()

    def stop(self, now: bool) -> bool:
        """Stop cleanly, or immediately if `now`. Return True to confirm the request."""
        self._early_stop = now or bool(self._early_stop)
        if self._session is not None:
            self._session.driver.stop(now)
        return True

    @ray.method(enable_task_events=True)
    def last(self, phase: str) -> None:
        """Return when this phase has ended. Ray's dashboard shows the name of this call, which names
        the phase, as the actor's running task: the name of an actor itself never changes."""
        with self._phase_changed:
            self._phase_changed.wait_for(lambda: self._phase != phase)

    def _show(self, phase: str) -> None:
        """Show a phase in Ray's dashboard, and none from "closed" on."""
        with self._phase_changed:
            if self._phase in (phase, "closed"):
                return
            self._phase = phase
            self._phase_changed.notify_all()
        if phase != "closed":
            me = ray.get_runtime_context().current_actor
            me.last.options(name=f"coordinator:{self._name} {phase}").remote(phase)

    def _live(self) -> None:
        self._show("starting")
        try:
            self._answer = self._run()
        except BbkbError as error:
            self._answer = error
        except BaseException as error:  # otherwise the watcher would wait forever
            self._answer = CampaignError(f"the coordinator failed: {type(error).__name__}: {error}")
        self._show("closed")
        self._ended.set()
        time.sleep(ANSWER_KEPT_SECONDS)
        from bbkb.orchestrator.running.coordinator.starting import forget_store

        forget_store(self._name)
        ray.kill(ray.get_runtime_context().current_actor, no_restart=True)

    def _run(self) -> End:
        is_restarted = ray.get_runtime_context().was_current_actor_reconstructed
        allocation = None if self._first is None or is_restarted else start_workers(self._first)
        try:
            # this takes a second, so workers start first
            gc.disable()  # an import makes objects that stay
            from bbkb.orchestrator.running.coordinator.starting import begin, publish

            gc.enable()

            def built() -> "Parts | None":
                return ray.get(self._parts.result().pop()) if self._gets_parts else None

            begun = begin(self._folder, self._settings, self._length, is_restarted, built, allocation)
        except BaseException:
            if allocation is not None:
                allocation.release()
            raise
        if isinstance(begun, tuple):  # the session had ended before this actor restarted
            return begun
        self._session = begun
        if self._early_stop is not None:
            begun.driver.stop(self._early_stop)
        publish(begun, self._name, self._show)
        close = begun.run()
        return close.outcome, close.reason
