"""Calls a function for each trial that has ended. It follows the campaign's log, and therefore also
works for remote campaigns."""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from orchestrator.campaign.events import AttemptEnded, TrialFailed, TrialStopped, TrialSucceeded
from orchestrator.campaign.state import CampaignState
from orchestrator.campaign.transitions import apply
from orchestrator.campaign.trial_result import TrialResult, trial_result
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

    def __init__(self, run: Run, on_result: Callable[[TrialResult], None] | None) -> None:
        self._run = run
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
                result = _result(event, state)
                if result is not None:
                    self._on_result(result)
            state = apply(state, event)
            self._folded = position, state


def _result(event: AttemptEnded, state: CampaignState) -> TrialResult | None:
    """Return the trial that ended with this event, the next after `state`; None if it gets another
    attempt."""
    goals = state.rules.goals
    others: dict[str, object] = {"seconds": event.finished - event.started}
    match event:
        case TrialSucceeded():
            is_feasible = goals.feasibility(event.value, event.metrics)
            others |= {"status": "succeeded", "is_feasible": is_feasible}
        case TrialStopped():
            others["status"] = "stopped"
        case TrialFailed():
            if not event.is_final:
                return None
            others |= {"status": "failed", "error": f"{event.failure}: {event.message}"}
    return trial_result(event, goals, parameters=state.running[event.trial].parameters, **others)
