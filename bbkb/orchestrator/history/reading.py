"""Reads a run's log: the whole history for commands that display a run, and an overview for lists of runs."""

import gc
from dataclasses import dataclass
from itertools import chain

from bbkb.orchestrator.campaign.events import RunState
from bbkb.orchestrator.campaign.status import Status, status_of
from bbkb.orchestrator.history.fold import History, fold
from bbkb.orchestrator.store import snapshots
from bbkb.orchestrator.store.runs import Run
from bbkb.orchestrator.store.store import EventStore


def read_history(run: Run) -> History:
    """Return the run's history.

    Raises RunError if the run has no log, and StoreError if the log cannot be read.
    """
    is_collecting = gc.isenabled()
    gc.disable()  # the cycle collector would take a quarter of the time: rows form no cycles
    try:
        with run.store() as store:
            created, events = run.stream(store)
            position, state = snapshots.load(store, run.name)
            # one event at a time, because a list of all events would double the memory
            history = fold(chain((created,), events), position, state if position else None)
    finally:
        if is_collecting:
            gc.enable()
    return history


@dataclass(frozen=True, slots=True)
class Overview:
    """A run in a list of runs."""

    began: float  # seconds since 1970
    state: RunState
    status: Status
    best: str
    tags: tuple[str, ...]
    strategy: str


def read_overview(run: Run, store: EventStore) -> Overview:
    """Return the overview of a run from its open store: from the newest snapshot and the events after
    it, so a long log takes no longer than a short one. Raises as `read_history` does."""
    state = snapshots.current(run, store)
    session, settings = state.session, state.settings
    best = "" if state.best_known is None else f"{state.best_known.value:.6g}"
    return Overview(
        began=state.clock.created,
        state=RunState(session.outcome or (RunState.UNFINISHED if session.epoch else RunState.NOT_STARTED)),
        status=status_of(state),
        best=f"front of {len(state.results.front.ordered)}" if len(settings.goals.objectives) > 1 else best,
        tags=settings.tags,
        strategy=settings.strategy["name"],
    )
