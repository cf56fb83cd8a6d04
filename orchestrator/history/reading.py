"""A run's log and its notes, read as one history: what all commands that show a run begin with."""

from orchestrator.history.fold import History, fold
from orchestrator.store.runs import Run


def read_history(run: Run) -> History:
    """The run's history with its notes. Raises RunError when it has no log, StoreError when that cannot be read."""
    with run.store() as store:
        history = fold(run.read(store))
        history.notes = store.notes(run.name)
    return history
