"""The history of a run, given its result."""

from bbkb.orchestrator.api import Result
from bbkb.orchestrator.history.fold import History
from bbkb.orchestrator.history.reading import read_history
from bbkb.orchestrator.store.runs import open_run


def history_of(result: Result) -> History:
    """Fold the event log of a result's run."""
    return read_history(open_run(result.folder))
