"""Calls a function for each trial that has ended. It follows the campaign's log, and therefore also
works for remote campaigns."""

import functools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager

from orchestrator.campaign.events import AttemptEnded, TrialFailed, TrialStopped, TrialSucceeded
from orchestrator.campaign.state import CampaignState
from orchestrator.campaign.transitions import apply
from orchestrator.campaign.trial_result import TrialResult, trial_result
from orchestrator.futures import settle
from orchestrator.store import snapshots
from orchestrator.store.runs import Run

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
        position, state = snapshots.load(store, run.name)
    ended = threading.Event()
    outcome: Future[None] = Future()
    follow = functools.partial(_follow, run, on_result, ended, earlier, position, state)
    thread = threading.Thread(target=settle, args=(outcome, follow), name="bbkb results", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    outcome.result()


def _follow(
    run: Run, on_result: OnResult, ended: threading.Event, earlier: int, position: int, state: CampaignState
) -> None:
    """Deliver the results after the first `earlier` events until the session has `ended`. `state`
    is the one after `position` events."""
    with run.store() as store:
        is_over = False
        while not is_over:
            # after the end, the last read delivers the remaining results
            is_over = ended.wait(_LOOK_SECONDS)
            for event in store.read(run.name, after=position):
                position += 1
                if position > earlier and isinstance(event, AttemptEnded):
                    result = _result(event, state)
                    if result is not None:
                        on_result(result)
                state = apply(state, event)


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
