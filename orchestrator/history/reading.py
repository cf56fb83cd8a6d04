"""A run's log and its notes, read as one history: what all commands that show a run begin with."""

from itertools import chain

from orchestrator.history.fold import History, fold
from orchestrator.store.runs import Run


def read_history(run: Run) -> History:
    """The run's history with its notes. Raises RunError when it has no log, StoreError when that cannot be read."""
    with run.store() as store:
        created, rest = run.stream(store)
        history = fold(chain((created,), rest))  # an event at a time: a long log would need as much memory again
        history.notes = store.notes(run.name)
    return history
