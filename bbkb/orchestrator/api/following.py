"""Calls a function for each trial that has ended. It follows the campaign's log, and therefore also
works for remote campaigns."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager

from bbkb.orchestrator.campaign.events import Event, TrialFailed, TrialStopped, TrialSucceeded
from bbkb.orchestrator.campaign.state import CampaignState
from bbkb.orchestrator.campaign.transitions import apply
from bbkb.orchestrator.campaign.trial_result import TrialResult, trial_result
from bbkb.orchestrator.futures import settle
from bbkb.orchestrator.store import snapshots
from bbkb.orchestrator.store.runs import Run

_LOOK_SECONDS = 0.5

OnResult = Callable[[TrialResult], None]


@contextmanager
def delivering(run: Run, on_result: OnResult | None) -> Iterator[None]:
    """Call `on_result` for each trial that ends, from a separate thread. Trials of earlier sessions
    are skipped.

    On exit, the remaining results are delivered and the first error of `on_result` is raised. After
    an error, no result is delivered.
    """
    if on_result is None:
        yield
        return
    with run.store() as store:
        earlier = store.length(run.name)
        snapshot = snapshots.load(store, run.name)
    ended = threading.Event()
    outcome: Future[None] = Future()

    def follow() -> None:
        """Deliver the results after the first `earlier` events until the session has `ended`."""
        position, state = snapshot
        is_over = False
        with run.store() as store:
            while not is_over:
                # after the end, the last read delivers the remaining results
                is_over = ended.wait(_LOOK_SECONDS)
                for event in store.read(run.name, after=position):
                    position += 1
                    if position > earlier and (result := _result(event, state)) is not None:
                        on_result(result)
                    state = apply(state, event)

    thread = threading.Thread(target=settle, args=(outcome, follow), name="bbkb results", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    outcome.result()


def _result(event: Event, state: CampaignState) -> TrialResult | None:
    """Return the trial that ended with this event, the next after `state`; None if none did."""
    goals = state.rules.goals
    others: dict[str, object]
    match event:
        case TrialSucceeded():
            is_feasible = goals.feasibility(event.value, event.metrics)
            others = {"status": "succeeded", "is_feasible": is_feasible}
        case TrialStopped():
            others = {"status": "stopped"}
        case TrialFailed(is_final=True):
            others = {"status": "failed", "error": f"{event.failure}: {event.message}"}
        case _:
            return None
    parameters = state.running[event.trial].parameters
    seconds = event.finished - event.started
    return trial_result(event, goals, parameters=parameters, seconds=seconds, **others)
