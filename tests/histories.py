"""The history of a run, given its result."""

from orchestrator.api import Result
from orchestrator.history.fold import History
from orchestrator.history.reading import read_history
from orchestrator.store.runs import open_run


def history_of(result: Result) -> History:
    """Fold the event log of a result's run."""
    return read_history(open_run(result.folder))
