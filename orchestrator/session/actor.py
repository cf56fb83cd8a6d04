"""The coordinator, a Ray actor that runs the driver in its own process. It contains no logic.

It starts to work when it is created, so that Ray can restart it while no process watches: a new process continues the
log and, with it, the evaluations that worker actors hold. On a cluster that was joined it is detached: a campaign whose
driver died continues. After the session it keeps the result for a watcher for a limited time, then removes itself.
"""

import json
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import ray
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayActorError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from objectives.objective import ObjectiveError
from orchestrator.campaign.endings import StopReason
from orchestrator.campaign.events import AttemptEnded, Event, SessionClosed, SessionOpened, StopRequested
from orchestrator.campaign.status import Status
from orchestrator.errors import ActorLostError, BbkbError, CampaignError, RunError
from orchestrator.session.assemble import Session, open_session
from orchestrator.session.handover import forget_store, leave_store, with_store
from orchestrator.session.metrics import Metrics
from orchestrator.settings.model import Settings, from_mapping
from orchestrator.store.runs import Run, open_run

T = TypeVar("T")
ActorHandle = Any  # of Ray, which declares no methods of remote classes

NAMESPACE = "bbkb"
ANSWER_KEPT_SECONDS = 60.0  # how long a watcher can ask how the session ended
SESSIONS_WITHOUT_PROGRESS = 10  # in a row, after which a restarted actor gives up
_STATUS_SECONDS = 1.0  # to wait for a snapshot that is only shown
_DELIVERY_SECONDS = 2.0  # to wait until a request to stop has arrived; `ray job stop` leaves three
_ANSWER_SECONDS = 5.0  # to wait for an answer that takes no time
_METRICS_SECONDS = 5.0  # between two updates of the metrics
_RESTART_PAUSE_SECONDS = 0.5  # between two questions while the actor restarts

End = tuple[str, str]  # of a session: its outcome and reason
Answer = End | BbkbError | ObjectiveError


class Orchestrator:
    """Builds a session out of a run's folder and runs it in a thread; methods are answered by others meanwhile.

    `settings` (JSON) are those of the session; `length` is how long the log was when the actor was created: a session
    that was closed since then was closed by this actor before it restarted. Neither holds a password. Our errors are
    returned as values: Ray would wrap them.
    """

    def __init__(self, folder: str, settings: str, length: int) -> None:
        self._folder = folder
        self._settings = settings
        self._name = Path(folder).name
        self._length = length
        self._session: Session | None = None
        self._early_stop: bool | None = None  # before there is a session: whether to stop immediately
        self._answer: Answer | None = None
        self._over = threading.Event()
        threading.Thread(target=self._live, name="session", daemon=True).start()

    def answer(self, seconds: float) -> Answer | None:
        """How the session ended, waiting up to `seconds` for it; None while it runs."""
        self._over.wait(seconds)
        return self._answer

    def status(self) -> Status | None:
        """A snapshot; None until the session is built."""
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
        except (BbkbError, ObjectiveError) as error:
            self._answer = error
        except BaseException as error:  # or the watcher would wait forever
            self._answer = CampaignError(f"the central actor broke: {type(error).__name__}: {error}")
        self._over.set()
        time.sleep(ANSWER_KEPT_SECONDS)
        forget_store(self._name)
        ray.kill(ray.get_runtime_context().current_actor, no_restart=True)

    def _run(self) -> End:
        run, settings = with_store(open_run(Path(self._folder))), self._settings
        self._name = run.name
        if ray.get_runtime_context().was_current_actor_reconstructed:
            events = run.events()
            end = ended_since(events, self._length)
            if end is not None:
                return end
            check_progress(events)
            if has_stop_request(events, self._length):
                self._early_stop = bool(self._early_stop)
            with run.store() as store:
                settings = store.claimed_settings(run.name) or settings
        self._session = open_session(run, from_mapping(json.loads(settings)))
        if self._early_stop is not None:
            self._session.driver.stop(self._early_stop)
        metrics = Metrics(self._name)
        self._session.driver.measure(metrics.observe)
        threading.Thread(target=_publish, args=(self._session, metrics), daemon=True, name="metrics").start()
        close = self._session.run()
        return close.outcome, close.reason


def _publish(session: Session, metrics: Metrics) -> None:
    """Keep the campaign's metrics up to date for as long as this process lives."""
    while True:
        metrics.update(session.driver.status())
        time.sleep(_METRICS_SECONDS)


def ended_since(events: Sequence[Event], length: int) -> End | None:
    """How the log's last session ended; None when it did not, or had ended already when the log was this long."""
    last = events[-1] if len(events) > length else None
    return (last.outcome, last.reason) if isinstance(last, SessionClosed) else None


def has_stop_request(events: Sequence[Event], length: int) -> bool:
    """Whether a clean stop was requested since the log was this long: a restarted actor continues to stop."""
    return any(isinstance(event, StopRequested) and event.reason is StopReason.INTERRUPTED for event in events[length:])


def check_progress(events: Sequence[Event]) -> None:
    """Raise CampaignError when `SESSIONS_WITHOUT_PROGRESS` sessions in a row died before any evaluation had ended."""
    without_progress = 0
    for event in reversed(events):
        if isinstance(event, AttemptEnded):
            break
        without_progress += isinstance(event, SessionOpened)
    if without_progress >= SESSIONS_WITHOUT_PROGRESS:
        raise CampaignError(
            f"the central actor must not die before a single evaluation ends, but has in {without_progress} sessions "
            "in a row: see its log on the Ray dashboard (memory?), then `bbkb resume`"
        )


class RemoteSession:
    """A session in the central actor, seen by a process that watches it. ActorLostError: it did not restart."""

    def __init__(self, run: Run, actor: ActorHandle, length: int) -> None:
        self._run = run
        self._actor = actor
        self._length = length  # of the log before the session
        self._answer: Answer | None = None
        self._last: Status | None = None
        self._undelivered: bool | None = None  # a request to stop that the actor has not received: whether at once

    @classmethod
    def start(cls, run: Run, settings: Settings, is_detached: bool) -> "RemoteSession":
        """Make the actor, which runs a session with `settings`.

        `is_detached`: it survives this process, instead of ending with it.
        Raises RunError when an actor of this run is alive already; one that has ended is removed.
        """
        _make_way(run)
        remote: Any = ray.remote(Orchestrator)
        # a SQLite log lies in a folder of this machine; without it the actor may go wherever there is room
        here = NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=not run.store_url.startswith("sqlite")
        )
        with run.store() as store:
            length = store.length(run.name)
        leave_store(run)
        actor = remote.options(
            name=_name(run),
            namespace=NAMESPACE,
            lifetime="detached" if is_detached else None,
            num_cpus=0,
            enable_task_events=False,  # the dashboard counts evaluations, not questions to this actor
            max_restarts=-1,
            max_task_retries=0,
            max_concurrency=8,
            scheduling_strategy=here,
        ).remote(str(run.folder), json.dumps(settings.resolved()), length)
        return cls(run, actor, length)

    def wait(self, seconds: float) -> bool:
        """Whether the session has ended, waiting up to `seconds` for it (a little longer while the actor restarts)."""
        if self._undelivered is not None:
            self.stop(self._undelivered)
        if self._answer is None:
            answer = self._ask(self._actor.answer.remote(seconds), seconds + _STATUS_SECONDS)
            self._answer = self._answer or answer
        return self._answer is not None

    def result(self) -> End:
        """Outcome and reason of the session, or the error that ended it, raised. The actor is removed."""
        while self._answer is None:
            self.wait(_ANSWER_SECONDS)
        self._last = self._ask(self._actor.status.remote(), _STATUS_SECONDS) or self._last
        self.end()
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer

    def status(self) -> Status | None:
        """A snapshot; the last one, saying so, while the actor restarts or is too busy; None before the first."""
        if self._answer is not None:
            return self._last
        status = self._ask(self._actor.status.remote(), _STATUS_SECONDS)
        if status is None and self._last is not None:
            return replace(self._last, activity="waiting for the central actor, which restarts or is busy")
        self._last = status
        return self._last

    def stop(self, now: bool) -> None:
        """Ask for a clean stop, or one at once; returns when the actor has received it. While it restarts, `wait` asks
        again."""
        has_heard = self._ask(self._actor.stop.remote(now), _DELIVERY_SECONDS)
        self._undelivered = None if has_heard else now

    def end(self) -> None:
        """Remove the actor, also while it works."""
        ray.kill(self._actor, no_restart=True)
        forget_store(self._run.name)

    def _ask(self, reference: "ray.ObjectRef[T]", seconds: float) -> T | None:
        """The actor's answer; None when there is none in time, or while it restarts."""
        try:
            answer = ray.get(reference, timeout=seconds)
        except GetTimeoutError:
            return None
        except ActorUnavailableError:
            time.sleep(_RESTART_PAUSE_SECONDS)
            return None
        except RayActorError as error:
            self._answer = self._answer or ended_since(self._run.events(), self._length)
            if self._answer is not None:  # another watcher has removed it
                return None
            raise ActorLostError(
                f"the central actor died ({type(error).__name__}) and cannot be restarted. Every finished result is in "
                f"the log: bbkb resume {self._run.folder}"
            ) from error
        return answer


def _name(run: Run) -> str:
    return f"bbkb {run.name}"


def _find(run: Run) -> ActorHandle | None:
    """The run's central actor on this cluster, None when there is none."""
    try:
        return ray.get_actor(_name(run), NAMESPACE)
    except ValueError:
        return None


def _make_way(run: Run) -> None:
    """Remove an actor of this run that has ended and keeps its answer for a watcher."""
    actor = _find(run)
    if actor is None:
        return
    try:
        is_over = ray.get(actor.answer.remote(0.0), timeout=_ANSWER_SECONDS) is not None
    except (GetTimeoutError, ActorUnavailableError):
        is_over = False
    except RayActorError:
        is_over = True
    if not is_over:
        raise RunError(
            f"{run.folder} must not be run twice, and a central actor on this cluster runs it: watch it with "
            f"`bbkb attach {run.folder}`, or end it with `bbkb stop {run.folder}` first"
        )
    ray.kill(actor, no_restart=True)
    while _find(run) is not None:
        time.sleep(0.05)
