"""The only loop: outcome → event → store → state → next command.

Events are applied in memory at once. They are written in one transaction before the loop acts on
them: before trials are submitted, before a refit, and before waiting. So every result is
durable first, and a turn of the loop costs one commit for any number of results (`recorder`). The
strategy computes in a background thread (`Computing`) while the loop collects results and dispatches
chosen trials; in the loop's thread with executors whose clock stands still during a computation
(virtual time), and with those that evaluate in this thread.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from bbkb.orchestrator.bandit.arrays import blas_threads
from bbkb.orchestrator.campaign import events, policy
from bbkb.orchestrator.campaign.events import Phase, SessionOutcome, StopReason
from bbkb.orchestrator.campaign.state import ACTIVITIES, CampaignState
from bbkb.orchestrator.campaign.status import Status, idle_seconds, status_of
from bbkb.orchestrator.engine.engine import Computation, Engine, Result, kind_of
from bbkb.orchestrator.errors import CampaignError, UserError, place_of, trace_of
from bbkb.orchestrator.session.evaluations import NO_PLACES, Evaluations, Places, remove_outputs
from bbkb.orchestrator.session.recorder import HealthLog, Recorder, Span
from bbkb.orchestrator.store.store import Writer
from bbkb.workers.evaluate import storable
from bbkb.workers.executor import Executor
from bbkb.workers.output import remove_checkpoints, remove_saved

T = TypeVar("T")

_FIRST_POLL_SECONDS = 0.0005
_LONGEST_POLL_SECONDS = 0.02


class Computing:
    """Runs the computations of the strategy, at most one at a time."""

    def __init__(self, in_background: bool) -> None:
        self.is_in_background = in_background
        # the outcome of the running call, and the function that receives its result
        self._current: tuple[Future[Any], Callable[[Any], None]] | None = None
        self._poll_seconds = _FIRST_POLL_SECONDS

    def start(self, call: Callable[[], T], finish: Callable[[T], None]) -> None:
        """Start `call()`. After it has returned, `poll` passes its result to `finish`. No other
        call may be running."""
        outcome: Future[T] = Future()
        self._current = (outcome, finish)
        self._poll_seconds = _FIRST_POLL_SECONDS

        def settle() -> None:
            try:
                outcome.set_result(call())
            except BaseException as error:  # raised again by `poll`
                outcome.set_exception(error)

        if self.is_in_background:
            # a daemon thread, unlike those of an executor of Python, so that a cancelled session does not wait for it
            threading.Thread(target=settle, name="bbkb strategy", daemon=True).start()
        else:
            settle()

    def poll(self) -> None:
        """Deliver a finished computation. Raises the exception of the computation, if it raised one."""
        if self._current is None or not self._current[0].done():
            return
        outcome, finish = self._current
        self._current = None
        finish(outcome.result())

    def wait_briefly(self) -> bool:
        """Wait briefly for the running computation, longer each time. Return False if no call is
        running."""
        if self._current is None:
            return False
        with contextlib.suppress(TimeoutError):
            self._current[0].exception(self._poll_seconds)
        self._poll_seconds = min(2.0 * self._poll_seconds, _LONGEST_POLL_SECONDS)
        return True


_LOGGER = logging.getLogger("bbkb.session")

CANCELLED = policy.Close(SessionOutcome.INTERRUPTED, "stopped at once, running evaluations were cancelled")
_ATTENTION_SECONDS = 0.2  # the longest wait for outcomes before the loop checks for a stop request


class Driver:
    """Runs one session. Only one thread calls `run`; any thread may call `status` and `stop`."""

    def __init__(
        self,
        engine: Engine,
        writer: Writer,
        executor: Executor,
        observe: Callable[[Status], None] | None = None,
        computes_in_background: bool = False,
        show_seconds: float = 0.0,
        places: Places = NO_PLACES,
    ) -> None:
        """`observe` receives a snapshot after a turn of the loop, at most one in `show_seconds`,
        and always the last one of the session."""
        self._places = places
        self._engine = engine
        self._executor = executor
        self._show = observe
        self._show_seconds = show_seconds  # the cost of a snapshot grows with the number of running evaluations
        self._next_shown = 0.0
        self._computing = Computing(computes_in_background)
        self._activity = "starting"
        self._health_log = HealthLog()
        # requests to end the session, from any thread: without and with its running evaluations
        self._drains = False
        self._cancels = False
        self.recorder = Recorder(engine, writer, lambda: self._cancels, self._wait_for_store)
        self._evaluations = Evaluations(executor, self.recorder, places)

    @property
    def _campaign(self) -> CampaignState:
        return self._engine.state

    def run(self, opened: events.SessionOpened) -> policy.Close:
        """Work until the campaign ends, is stopped, or fails. Always closes the executor.

        Raises FencedError if another process has taken over the campaign, StoreError if results
        cannot be written, and CampaignError if the strategy fails. Committed events are kept.
        """
        leave_running = True
        try:
            self.recorder.record(opened)
            remove_checkpoints(self._places.folders, sorted(self._campaign.trainings.removed))
            self._remove_saved()
            self._evaluations.begin()
            close = None
            while close is None:
                close = self._turn()
            leave_running = False
        except KeyboardInterrupt:
            leave_running = False
            return self._close(CANCELLED)
        except (UserError, CampaignError):
            raise
        except Exception as error:
            reason = storable(f"{type(error).__name__} in {self._activity}: {error}{place_of(error)}")
            _LOGGER.error("%s", reason, exc_info=error)
            if self._campaign.session.is_open:
                self.recorder.record(
                    events.SessionClosed(time=self._executor.now(), outcome=SessionOutcome.FAILED, reason=reason)
                )
            self._evaluations.commit()
            remedy = "No finished result is lost; `bbkb resume` continues from here"
            raise CampaignError(f"{reason}. {remedy}\n{storable(trace_of(error))}") from error
        finally:
            # the process that takes over the campaign may adopt the running evaluations
            self._executor.close(leave_running)
            if not leave_running:
                remove_outputs(self._places.outputs)
        return close

    def stop(self, now: bool = False) -> None:
        """Stop dispatching, and end the session when the running evaluations have ended. `now`:
        cancel the evaluations instead of waiting."""
        self._drains = True
        if now:
            self._cancels = True

    def status(self) -> Status:
        """Return a snapshot. Any thread may call this at any time."""
        return status_of(self._campaign, self._executor.now(), self._activity)

    def _turn(self) -> policy.Close | None:
        """Record what has changed, and carry out the next command. Return the end of the session, if it ends."""
        now = self._executor.now()
        if self._drains and self._campaign.session.phase is Phase.RUNNING:
            self.recorder.record(events.StopRequested(time=now, reason=StopReason.INTERRUPTED))
        if self._executor.slots != self._campaign.session.slots:
            self.recorder.record(events.PlacesChanged(time=now, slots=self._executor.slots))
        self._health_log.update(self._campaign, self._executor.now())
        self._computing.poll()
        now = self._executor.now()
        command = policy.decide(self._campaign, now)
        match command:
            case policy.Close():
                return self._close(command)
            case policy.Ask() | policy.Tell() | policy.Begin() | policy.Grow():
                self._compute(command)
            case policy.Await():
                self._evaluations.commit()
                if not self._cancels:
                    is_computing = self._computing.wait_briefly()
                    if not is_computing:
                        self._activity = "evaluating"
                    self._evaluations.receive(0.0 if is_computing else _ATTENTION_SECONDS)
            case policy.Pause(seconds):
                self._evaluations.commit()
                self._activity = "waiting before retries"
                self._executor.pause(min(seconds, _ATTENTION_SECONDS))
            case policy.Dispatch():
                self._evaluations.dispatch(command)
            case policy.Finish(trials):
                self.recorder.record(events.TrialsContinued(time=now, trials=trials, reason="finish"))
            case policy.RemoveCheckpoints(trials):
                # if the process dies before it removes the files, the next session removes them
                self.recorder.record(events.CheckpointsRemoved(time=now, trials=trials))
                self._evaluations.commit()
                remove_checkpoints(self._places.folders, trials)
            case policy.Stop(reason):
                self.recorder.record(events.StopRequested(time=now, reason=reason))
        if self._show is not None and time.perf_counter() >= self._next_shown:
            self._next_shown = time.perf_counter() + self._show_seconds
            self._show(self.status())
        return self._close(CANCELLED) if self._cancels else None

    def _remove_saved(self) -> None:
        trials = self._places.folders
        if trials is not None and self._campaign.trainings.saved:
            self._evaluations.commit()
            remove_saved(trials, self._campaign.first_needed)

    def _compute(self, command: Computation) -> None:
        """Record the beginning of a computation and start it.

        Results are in the log before the strategy learns from them, and before the loop waits. It does not wait in
        virtual time, where a choice is written with the results before it.
        """
        what = kind_of(command)
        self.recorder.record(events.ComputingBegan(time=self._executor.now(), what=what))
        traits = self._campaign.settings.workers.traits
        if what == "refreshing" or not (self._computing.is_in_background or traits.in_virtual_time):
            self._evaluations.commit()
        self._activity = "learning known results" if isinstance(command, policy.Begin) else ACTIVITIES[what]
        campaign = self._campaign
        began = time.perf_counter()

        def run() -> Result:
            with blas_threads(1):
                return self._engine.compute(command, campaign)

        self._computing.start(run, lambda result: self._conclude(what, result, time.perf_counter() - began))

    def _conclude(self, what: events.Computed, result: Result, seconds: float) -> None:
        if what == "refreshing":
            self.recorder.measured(Span.REFIT, seconds)
        for event in self._engine.record(result, self._executor.now(), seconds):
            before = len(self._campaign.notes.remarks)
            self.recorder.record(event)
            for remark in self._campaign.notes.remarks[before:]:  # that follow from the event
                _LOGGER.warning("%s", remark)
            if isinstance(event, events.BatchChosen) and event.gives_up:
                self._evaluations.commit()
                remove_checkpoints(self._places.folders, event.gives_up)
        if what == "refreshing":
            self._remove_saved()

    def _close(self, command: policy.Close) -> policy.Close:
        session = self._campaign.session
        if session.outcome is not None:  # an interrupt while the end was being written
            self._evaluations.commit()
            return policy.Close(session.outcome, session.close_reason)
        now = self._executor.now()
        idle = idle_seconds(self._campaign, self._campaign.clock.since(now))
        self.recorder.record(
            events.SessionClosed(time=now, outcome=command.outcome, reason=command.reason, idle_seconds=idle)
        )
        self._evaluations.commit()
        self.recorder.save_snapshot()
        self._activity = ""
        if self._show is not None:
            self._show(self.status())
        return command

    def _wait_for_store(self, activity: str) -> None:
        self._activity = activity
