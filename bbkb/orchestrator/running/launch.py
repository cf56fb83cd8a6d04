"""Runs one session of a campaign, in this process or in the coordinator's Ray actor, and shows its
progress."""

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from rich.console import Console

from bbkb.orchestrator import logs
from bbkb.orchestrator.campaign.results import TrialResult
from bbkb.orchestrator.campaign.settings import Settings
from bbkb.orchestrator.campaign.transitions import apply
from bbkb.orchestrator.history.fold import ended_trial
from bbkb.orchestrator.report.terminal import View, view
from bbkb.orchestrator.running.coordinator.environment import named_cluster
from bbkb.orchestrator.running.ray_start import connect_for
from bbkb.orchestrator.session.build import Parts
from bbkb.orchestrator.session.open import open_session
from bbkb.orchestrator.store import snapshots
from bbkb.orchestrator.store.runs import Run
from bbkb.workers.limits import PARENTS_ONLY, HostInterruptError, deliver_to_forks, handling

if TYPE_CHECKING:  # it imports Ray
    from bbkb.orchestrator.running.coordinator.cluster import Cluster
    from bbkb.orchestrator.running.coordinator.remote import RemoteSession

_LOGGER = logging.getLogger("bbkb.cluster")
_REDRAW_SECONDS = 0.25
# time between two snapshots, whose cost grows with the number of running evaluations
_SHOW_SECONDS = 0.1
_PATIENCE_SECONDS = 10.0  # the time that an immediate stop may take
_DELIVERY_SECONDS = 0.25  # between two looks at the log of a session in another process

Outcome = tuple[str, str]  # finished, failed or interrupted; and the reason
OnResult = Callable[[TrialResult], None]


class Delivery:
    """Calls `on_result` for each trial that ends in this session, until a call raises an error.

    A session in this process calls `deliver` itself, between two evaluations. For a session in
    another process, `start` does so in a thread.
    """

    def __init__(self, run: Run, on_result: OnResult) -> None:
        self.error: BaseException | None = None  # of `on_result`, or of the store
        self._run = run
        self._on_result = on_result
        with run.store() as store:
            self._earlier = store.length(run.name)
            self._position, self._state = snapshots.load(store, run.name)
        self._has_ended = threading.Event()
        self._thread: threading.Thread | None = None

    def deliver(self) -> None:
        """Deliver the new results. Errors are kept in `error`, also KeyboardInterrupt."""
        if self.error is not None:
            return
        try:
            with self._run.store() as store:
                for event in store.read(self._run.name, after=self._position):
                    self._position += 1
                    result = ended_trial(event, self._state) if self._position > self._earlier else None
                    self._state = apply(self._state, event)
                    if result is not None:
                        self._on_result(result)
        except BaseException as error:
            self.error = error

    def start(self) -> None:
        """Deliver results from a thread until `finish` is called."""

        def follow() -> None:
            is_over = False
            while self.error is None and not is_over:
                is_over = self._has_ended.wait(_DELIVERY_SECONDS)
                self.deliver()  # after the end, the remaining results

        self._thread = threading.Thread(target=follow, name="bbkb results", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Deliver the remaining results. `error` is the error that ended the calls, if there was one."""
        self._has_ended.set()
        if self._thread is not None:
            self._thread.join()
        else:
            self.deliver()


def launch(
    run: Run,
    settings: Settings,
    console: Console,
    address: str | None,
    parts: Parts | None = None,
    ray: "Future[Cluster] | None" = None,
    keeps_ray: bool = False,
    delivery: Delivery | None = None,
    received: list[int] | None = None,
) -> Outcome:
    """Run a session to its end and return its outcome and reason.

    The first interrupt (Ctrl-C or SIGTERM) requests a clean stop, the second an immediate one.

    Args:
        run: the run.
        settings: the settings of the campaign, or the changed ones of a resume.
        console: the console that shows progress.
        address: the Ray cluster to join; None: RAY_ADDRESS. Without either, a local Ray is started.
            Other executors ignore it.
        parts: the result of `build` for these settings, to avoid building them twice.
        ray: the result of `start_ray` or `join`.
        keeps_ray: whether to keep a started local Ray for the next campaign of this process.
        delivery: passes results on while the session runs. Its error stops the session immediately.
        received: the signals that interrupted the session are appended to it.

    Raises:
        BbkbError: the errors of `open_session` and `Driver.run`. CampaignError: if the actor died.
    """
    with view(console) as shown:
        if not settings.workers.traits.on_ray:
            return _run_here(run, settings, shown, parts, delivery, received)
        from bbkb.orchestrator.running.coordinator.cluster import disconnect
        from bbkb.orchestrator.running.coordinator.remote import RemoteSession

        with logs.log_into(run.folder, run.name):
            cluster = _cluster(settings, address, run.name, ray, shown, keeps_ray=keeps_ray)
        session = None
        try:
            # a local Ray ends with this process, so its actor must not be detached
            session = RemoteSession.start(run, settings, not cluster.is_ours, parts)
            return watch(session, shown, delivery, received)
        finally:
            # a command reports on the session in the meantime
            disconnect(cluster, keeps_ray, waits=keeps_ray, held=(session, sys.exception()))


def _cluster(
    settings: Settings,
    address: str | None,
    name: str,
    ray: "Future[Cluster] | None",
    shown: View,
    keeps_ray: bool,
) -> "Cluster":
    """Return the cluster of the session, after waiting for it."""
    joined = named_cluster(address)
    further = ": further campaigns of this process use it" if keeps_ray else ""
    starting = f"starting Ray on this machine{further}"
    if ray is None or not ray.done():
        shown.wait_for(starting if joined is None else f"joining the Ray cluster at {joined}")
    cluster = connect_for(settings, address, name) if ray is None else ray.result()
    _LOGGER.info("%s Ray at %s", "started" if cluster.is_ours else "joined", cluster.address)
    where = "a local Ray" if cluster.is_ours else f"the Ray cluster at {cluster.address}"
    dashboard = f", dashboard {cluster.dashboard_url}" if cluster.dashboard_url else ""
    for line in (f"evaluating on {where}{dashboard}", *cluster.notes):
        shown.say(line)
    return cluster


def _run_here(
    run: Run,
    settings: Settings,
    shown: View,
    parts: Parts | None,
    delivery: Delivery | None,
    received: list[int] | None,
) -> Outcome:
    """Run the session and its evaluations in this process."""
    session = open_session(run, settings, shown.update, _SHOW_SECONDS, parts)

    def stop(now: bool) -> None:
        session.driver.stop(now)
        if now:  # an evaluation or a computation may occupy this thread
            raise HostInterruptError

    def deliver() -> None:
        if delivery is not None:
            delivery.deliver()
            if delivery.error is not None:
                session.driver.stop(now=True)

    session.driver.recorder.written = deliver
    with _interrupts(stop, received):
        close = session.run()
    return close.outcome, close.reason


def watch(
    session: "RemoteSession",
    shown: View,
    delivery: Delivery | None = None,
    received: list[int] | None = None,
) -> Outcome:
    """Show a session in another process until its end. The first interrupt stops it cleanly; the
    second, or an error of `delivery`, immediately.

    Args:
        session: the session.
        shown: the view that displays it.
        delivery: see `launch`.
        received: see `launch`.
    """
    if delivery is not None:
        delivery.start()
    # stop requests that were not forwarded yet, because a signal handler must not call Ray
    requests: list[bool] = []
    deadline = float("inf")

    def import_report() -> None:  # while evaluations run, because nothing waits for it then
        import scipy.optimize  # noqa: F401

        import bbkb.orchestrator.report.page  # noqa: F401

    report = threading.Thread(target=import_report, name="import of the report", daemon=True)
    with _interrupts(requests.append, received):
        while not session.wait(_REDRAW_SECONDS):
            if delivery is not None and delivery.error is not None and deadline == float("inf"):
                requests.append(True)
            while requests:
                now = requests.pop(0)
                session.stop(now)
                deadline = time.monotonic() + _PATIENCE_SECONDS if now else deadline
            if (status := session.status()) is not None:
                shown.update(status)
                if status.trials.done and report.ident is None:
                    report.start()
            if time.monotonic() > deadline:
                session.end()
                return "interrupted", "interrupted during a computation of the model"
        outcome = session.result()
        if (status := session.status()) is not None:
            shown.update(status)
        return outcome


@contextmanager
def _interrupts(stop: Callable[[bool], None], received: list[int] | None) -> Iterator[None]:
    """Make Ctrl-C and SIGTERM call `stop(False)` the first time and `stop(True)` after that. The
    signals are appended to `received`. In processes that the objective forks, SIGTERM ends the process."""
    signals = [] if received is None else received
    owner = os.getpid()

    def interrupt(number: int, _frame: FrameType | None) -> None:
        if os.getpid() != owner:
            return
        signals.append(number)
        stop(len(signals) > 1)

    if threading.current_thread() is not threading.main_thread():
        # only the main thread receives signals; programs that run campaigns in threads must handle
        # them
        yield
        return
    PARENTS_ONLY.add(interrupt)
    deliver_to_forks()
    with handling(signal.SIGINT, interrupt), handling(signal.SIGTERM, interrupt):
        yield
