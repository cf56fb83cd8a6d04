"""Reads a run's log into a history, for all commands that display a run."""

import gc
from itertools import chain

from bbkb.orchestrator.history.fold import History, fold
from bbkb.orchestrator.store import snapshots
from bbkb.orchestrator.store.runs import Run


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
