"""A handle of the coordinator's session, for the process that creates the actor and watches it."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import ray
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayActorError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from bbkb.orchestrator.campaign.settings import Settings
from bbkb.orchestrator.campaign.status import Status
from bbkb.orchestrator.errors import ActorLostError, RunError
from bbkb.orchestrator.running.coordinator.actor import Answer, Orchestrator
from bbkb.orchestrator.running.coordinator.cluster import cores, lost_process, unreachable_process
from bbkb.orchestrator.running.coordinator.starting import End, ending_since, forget_store, leave_store
from bbkb.orchestrator.session.build import Parts
from bbkb.orchestrator.session.executors import first_workers
from bbkb.orchestrator.session.open import as_text
from bbkb.orchestrator.store.connect import resolve
from bbkb.orchestrator.store.runs import Run
from bbkb.workers.on_ray.internals import NAMESPACE

T = TypeVar("T")
ActorHandle = Any  # Ray's handles do not declare the methods of remote classes

_STATUS_SECONDS = 1.0  # the longest wait for a snapshot of the status
# the longest wait for the confirmation of a stop request; `ray job stop` allows three seconds
_DELIVERY_SECONDS = 2.0
_ANSWER_SECONDS = 5.0  # the longest wait for an immediate answer
_EXIT_SECONDS = 2.0  # for the actor to exit after its session, before it is killed
_RESTART_PAUSE_SECONDS = 0.5  # between two calls while the actor restarts
_CHECK_SECONDS = 5.0  # between two checks whether Ray's processes can be reached
# the longest time without them; Ray ends this process after 60 s without its head
_UNREACHABLE_SECONDS = 40.0


class RemoteSession:
    """A session in the coordinator's actor, as seen from another process. Methods raise
    ActorLostError if the actor is lost."""

    def __init__(self, run: Run, actor: ActorHandle, length: int, built: "list[ray.ObjectRef[Parts]]") -> None:
        self._run = run
        self._actor = actor
        self._length = length  # length of the log before the session
        # kept alive until the actor has fetched it: Ray ends a process without a message if it owns
        # an object that is lost with its node
        self._built = built
        self._answer: Answer | None = None
        self._last: Status | None = None
        # a stop request that the actor has not received yet: whether it is immediate
        self._undelivered: bool | None = None
        self._reached = time.monotonic()  # when Ray's processes accepted connections

    @classmethod
    def start(cls, run: Run, settings: Settings, is_detached: bool, parts: Parts | None = None) -> "RemoteSession":
        """Create the actor, which runs a session with `settings`.

        `is_detached`: whether the actor survives this process. `parts`: the parts that this process
        has built from the settings. An actor that is not detached receives them instead of building
        them again. Raises RunError if another actor has an active session of this run. An actor
        whose session has ended is removed.
        """
        ended = _find(run)  # an actor whose session has ended keeps its result for a watcher
        if ended is not None:
            try:
                is_over = ray.get(ended.answer.remote(0.0), timeout=_ANSWER_SECONDS) is not None
            except (GetTimeoutError, ActorUnavailableError):
                is_over = False
            except RayActorError:
                is_over = True
            if not is_over:
                raise RunError(
                    f"{run.folder} must not be run twice, and a coordinator on this cluster is running it: watch it "
                    f"with `{run.command('attach')}`, or end it with `{run.command('stop')}` first"
                )
            ray.kill(ended, no_restart=True)
            while _find(run) is not None:
                time.sleep(0.05)
        remote: Any = ray.remote(Orchestrator)
        # a SQLite log is in a folder of this machine; with any other store, the actor can run on
        # any node
        is_server = not isinstance(resolve(run.place), Path)
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=is_server)
        with run.store() as store:
            length = store.length(run.name)
        leave_store(run)
        # Ray deletes the object when its owner dies
        built = [] if parts is None or is_detached else _put(parts)
        actor = remote.options(
            name=_name(run),
            namespace=NAMESPACE,
            lifetime="detached" if is_detached else None,
            num_cpus=0,
            # so that the dashboard counts evaluations instead of this actor's calls
            enable_task_events=False,
            max_restarts=-1,
            max_task_retries=0,
            max_concurrency=8,
            scheduling_strategy=here,
        ).remote(
            str(run.folder),
            run.name,
            as_text(settings),
            length,
            first_workers(settings, run.name, None if is_detached else cores()),
            bool(built),
        )
        if built:
            actor.take_parts.remote(built)
        return cls(run, actor, length, built)

    def wait(self, seconds: float) -> bool:
        """Return whether the session has ended, waiting for it up to `seconds` (slightly longer
        while the actor restarts)."""
        self._check_ray()
        if self._undelivered is not None:
            self.stop(self._undelivered)
        if self._answer is None:
            answer = self._ask(self._actor.answer.remote(seconds), seconds + _STATUS_SECONDS)
            self._answer = self._answer or answer
        return self._answer is not None

    def result(self) -> End:
        """Return the session's outcome and reason, or raise its error. Removes the actor."""
        while self._answer is None:
            self.wait(_ANSWER_SECONDS)
        self._last = self._ask(self._actor.status.remote(), _STATUS_SECONDS) or self._last
        self.end()
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer

    def status(self) -> Status | None:
        """Return a snapshot. While the actor restarts or is busy, return the previous snapshot with
        a note, or None if there is none yet."""
        if self._answer is not None:
            return self._last
        status = self._ask(self._actor.status.remote(), _STATUS_SECONDS)
        if status is None and self._last is not None:
            return replace(self._last, activity="waiting for the coordinator, which is restarting or busy")
        if status is not None:  # the session is built
            self._built.clear()
        self._last = status
        return self._last

    def stop(self, now: bool) -> None:
        """Request a clean or an immediate stop, and return when the actor has received the request.
        `wait` repeats a request that a restarting actor has missed."""
        has_heard = self._ask(self._actor.stop.remote(now), _DELIVERY_SECONDS)
        self._undelivered = None if has_heard else now

    def end(self) -> None:
        """Remove the actor, even if it is working."""
        if self._answer is not None:
            # An actor that exits by itself first sends the ends of its last evaluations to Ray, which
            # otherwise lists them as failed.
            self._actor.__ray_terminate__.remote()
            deadline = time.monotonic() + _EXIT_SECONDS
            while _find(self._run) is not None and time.monotonic() < deadline:
                time.sleep(0.02)
        ray.kill(self._actor, no_restart=True)
        forget_store(self._run.name)

    def _ask(self, reference: "ray.ObjectRef[T]", seconds: float) -> T | None:
        """Return the actor's response; None if it does not arrive in time or the actor is
        restarting."""
        try:
            answer = ray.get(reference, timeout=seconds)
        except GetTimeoutError:
            return None
        except ActorUnavailableError:
            time.sleep(_RESTART_PAUSE_SECONDS)
            return None
        except RayActorError as error:
            self._answer = self._answer or ending_since(self._run, self._length)
            if self._answer is not None:  # another watcher has removed the actor
                return None
            raise self._lost(f"the coordinator died ({type(error).__name__}) and cannot be restarted") from error
        return answer

    def _check_ray(self) -> None:
        """Raise ActorLostError if Ray's processes have ended or are unreachable for long."""
        if process := lost_process():
            raise self._lost(
                f"Ray's process {process} on this machine has ended (killed, or out of memory?), so the session "
                "cannot continue"
            )
        seconds = time.monotonic() - self._reached
        if seconds < _CHECK_SECONDS:
            return
        if not (process := unreachable_process()):
            self._reached += seconds
        elif seconds > _UNREACHABLE_SECONDS:
            raise self._lost(f"{process} could not be reached for {_UNREACHABLE_SECONDS:g} s")

    def _lost(self, why: str) -> ActorLostError:
        return ActorLostError(f"{why}. Every finished result is in the log: {self._run.resume_command}")


def _put(parts: Parts) -> "list[ray.ObjectRef[Parts]]":
    """Return a reference to the parts, in a list. The list is empty if they cannot be pickled. The
    actor then builds them itself, and explains why an objective must be picklable."""
    try:
        return [ray.put(parts)]
    except Exception:  # pickling runs the objective's own code, which may raise anything
        return []


def _name(run: Run) -> str:
    return f"bbkb {run.name}"


def _find(run: Run) -> ActorHandle | None:
    try:
        return ray.get_actor(_name(run), NAMESPACE)
    except ValueError:
        return None
