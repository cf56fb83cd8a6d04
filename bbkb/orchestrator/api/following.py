"""Calls a function for each trial that has ended. It follows the campaign's log, and therefore also
works for remote campaigns."""

import threading
from collections.abc import Callable, Mapping

from bbkb.objectives.parameters import as_given
from bbkb.orchestrator.campaign.events import Event, TrialFailed, TrialStopped, TrialSucceeded
from bbkb.orchestrator.campaign.state import CampaignState
from bbkb.orchestrator.campaign.transitions import apply
from bbkb.orchestrator.campaign.trial_result import TrialResult, metrics_with_first
from bbkb.orchestrator.store import snapshots
from bbkb.orchestrator.store.runs import Run

_LOOK_SECONDS = 0.25

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
                    result = _result(event, self._state) if self._position > self._earlier else None
                    self._state = apply(self._state, event)
                    if result is not None:
                        self._on_result(result)
        except BaseException as error:
            self.error = error

    def start(self) -> None:
        """Deliver results from a thread until `finish` is called."""
        self._thread = threading.Thread(target=self._follow, name="bbkb results", daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        is_over = False
        while self.error is None and not is_over:
            is_over = self._has_ended.wait(_LOOK_SECONDS)
            self.deliver()  # after the end, the remaining results

    def finish(self) -> None:
        """Deliver the remaining results. `error` is the error that ended the calls, if there was one."""
        self._has_ended.set()
        if self._thread is not None:
            self._thread.join()
        else:
            self.deliver()


def _result(event: Event, state: CampaignState) -> TrialResult | None:
    """Return the trial that ended with this event, the next after `state`; None if none did."""
    goals = state.settings.goals
    metrics: Mapping[str, float] = {}
    is_feasible = None
    value: float | None = None
    error = ""
    match event:
        case TrialSucceeded():
            status, value, metrics = "succeeded", event.value, event.metrics
            is_feasible = goals.feasibility(event.value, metrics)
        case TrialStopped():
            status, value = "stopped", event.value
        case TrialFailed(is_final=True):
            status, error = "failed", f"{event.failure}: {event.message}"
        case _:
            return None
    return TrialResult(
        trial=event.trial,
        parameters=as_given(state.settings.space, state.running[event.trial].trial.parameters),
        value=value,
        status=status,
        metrics=metrics_with_first(goals, value, metrics),
        seconds=event.finished - event.started,
        error=error,
        is_feasible=is_feasible,
    )
