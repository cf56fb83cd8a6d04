"""Calls a function for each trial that has ended, by following the campaign's log, so that it works
for remote campaigns."""

import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from orchestrator.api.result import Parameters, TrialResult
from orchestrator.campaign.events import (
    BatchChosen,
    Event,
    TrialFailed,
    TrialsReopened,
    TrialStopped,
    TrialSucceeded,
)
from orchestrator.store.runs import Run

_LOOK_SECONDS = 0.5


class ResultDelivery:
    """While it is entered, `on_result` is called for each trial that ends, from a thread of its
    own; not for those that ended before, in an earlier session.

    On exit it delivers the remaining results, and raises the first error of `on_result`, after
    which no result is delivered.
    """

    def __init__(self, run: Run, on_result: Callable[[TrialResult], None] | None, metric: str | None = None) -> None:
        """`metric`: the name of the first of several objectives, whose value is one of a trial's
        metrics."""
        self._run = run
        self._metric = metric
        self._on_result = on_result
        self._over = threading.Event()
        self._error: BaseException | None = None
        self._known = 0  # the events of earlier sessions
        self._parameters: dict[int, Parameters] = {}  # of the trials that are open
        self._thread = threading.Thread(target=self._follow, name="bbkb results", daemon=True)

    def __enter__(self) -> Self:
        if self._on_result is not None:
            with self._run.store() as store:
                self._known = store.length(self._run.name)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._on_result is None:
            return
        self._thread.join()
        if self._error is not None and error is None:
            raise self._error

    def _follow(self) -> None:
        try:
            with self._run.store() as store:
                position, is_over = 0, False
                while not is_over:
                    is_over = self._over.wait(_LOOK_SECONDS)  # the read after the end delivers the rest
                    for event in store.read(self._run.name, after=position):
                        position += 1
                        self._deliver(event, is_new=position > self._known)
        except BaseException as error:  # raised again in the thread that started the campaign
            self._error = error

    def _deliver(self, event: Event, is_new: bool) -> None:
        if isinstance(event, BatchChosen):
            self._parameters.update((pick.trial, pick.parameters) for pick in event.picks)
        if isinstance(event, TrialsReopened):
            self._parameters.update((one.trial, one.parameters) for one in event.trials)
        result = _result(event, self._parameters, self._metric)
        if result is not None and is_new and self._on_result is not None:
            self._on_result(result)


def _result(event: Event, parameters: dict[int, Parameters], metric: str | None) -> TrialResult | None:
    """Return the trial that has ended with this event, taken out of `parameters`; None with any
    other event.

    `metric`: the name of the first of several objectives."""
    value: float | None
    metrics: Mapping[str, float]
    match event:
        case TrialSucceeded():
            value, status, error = event.value, "succeeded", ""
            metrics = {**({} if metric is None else {metric: event.value}), **event.metrics}
        case TrialStopped():
            value, status, error, metrics = event.value, "stopped", "", {}
        case TrialFailed(is_final=True):
            value, status, error, metrics = None, "failed", f"{event.failure}: {event.message}", {}
        case _:
            return None
    return TrialResult(
        trial=event.trial,
        parameters=parameters.pop(event.trial),
        value=value,
        status=status,
        metrics=metrics,
        seconds=event.finished - event.started,
        error=error,
    )
