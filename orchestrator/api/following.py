"""Calls a function for each trial that has ended. It follows the campaign's log, and therefore also
works for remote campaigns."""

import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from orchestrator.api.result import Parameters
from orchestrator.campaign.events import AttemptEnded, TrialFailed, TrialStopped, TrialSucceeded
from orchestrator.campaign.state import CampaignState
from orchestrator.campaign.transitions import apply
from orchestrator.campaign.trial_result import TrialResult
from orchestrator.store import snapshots
from orchestrator.store.event_store import EventStore
from orchestrator.store.runs import Run

_LOOK_SECONDS = 0.5


class ResultDelivery:
    """A context manager that calls `on_result` for each trial that ends, from a separate thread.
    Trials of earlier sessions are skipped.

    On exit, it delivers the remaining results and raises the first error of `on_result`. After an
    error, no result is delivered.
    """

    def __init__(self, run: Run, on_result: Callable[[TrialResult], None] | None, metric: str | None = None) -> None:
        """`metric`: the name of the first of several objectives, which gives the trial's value."""
        self._run = run
        self._metric = metric
        self._on_result = on_result
        self._ended = threading.Event()
        self._error: BaseException | None = None
        self._earlier = 0  # number of events of earlier sessions
        self._folded = 0, CampaignState()  # number of folded events, and the state after them
        self._thread = threading.Thread(target=self._follow, name="bbkb results", daemon=True)

    def __enter__(self) -> Self:
        if self._on_result is not None:
            with self._run.store() as store:
                self._earlier = store.length(self._run.name)
                self._folded = snapshots.load(store, self._run.name)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._on_result is None:
            return
        self._thread.join()
        if self._error is not None and error is None:
            raise self._error

    def _follow(self) -> None:
        try:
            with self._run.store() as store:
                is_over = False
                while not is_over:
                    # after the end, the last read delivers the remaining results
                    is_over = self._ended.wait(_LOOK_SECONDS)
                    self._catch_up(store)
        except BaseException as error:  # raised again in the thread that started the campaign
            self._error = error

    def _catch_up(self, store: EventStore) -> None:
        position, state = self._folded
        for event in store.read(self._run.name, after=position):
            position += 1
            is_new = position > self._earlier
            if isinstance(event, AttemptEnded) and is_new and self._on_result is not None:
                result = _result(event, state.running[event.trial].parameters, self._metric)
                if result is not None:
                    self._on_result(result)
            state = apply(state, event)
            self._folded = position, state


def _result(event: AttemptEnded, parameters: Parameters, metric: str | None) -> TrialResult | None:
    """Return the trial that ended with this event; None if it gets another attempt.

    `metric`: the name of the first of several objectives."""
    value: float | None
    metrics: Mapping[str, float]
    match event:
        case TrialSucceeded():
            value = event.value
            status = "succeeded"
            error = ""
            metrics = {**({} if metric is None else {metric: event.value}), **event.metrics}
        case TrialStopped():
            value = event.value
            status = "stopped"
            error = ""
            metrics = {}
        case TrialFailed():
            if not event.is_final:
                return None
            value = None
            status = "failed"
            error = f"{event.failure}: {event.message}"
            metrics = {}
    return TrialResult(
        trial=event.trial,
        parameters=parameters,
        value=value,
        status=status,
        metrics=metrics,
        seconds=event.finished - event.started,
        error=error,
    )
