"""Reads a run's log and notes into a history, for all commands that display a run."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

from orchestrator.history.fold import History, fold, fold_tables
from orchestrator.store import snapshots
from orchestrator.store.runs import Run


def read_history(run: Run) -> History:
    """Return the run's history with its notes.

    Raises RunError if the run has no log, and StoreError if the log cannot be read.
    """
    with run.store() as store, _without_collection():
        created, events = run.stream(store)
        position, state = snapshots.load(store, run.name)
        # one event at a time, because a list of all events would double the memory
        history = fold(chain((created,), events), position, state if position else None)
        history.notes = store.notes(run.name)
    return history


def read_tables(run: Run) -> History:
    """Return the run's tables and notes without totals. Raises the errors of `read_history`."""
    with run.store() as store, _without_collection():
        created, events = run.stream(store)
        history = fold_tables(chain((created,), events))
        history.notes = store.notes(run.name)
    return history


@contextmanager
def _without_collection() -> Iterator[None]:
    """Disable the cycle collector, which would take a quarter of the time: rows form no cycles."""
    is_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_enabled:
            gc.enable()
