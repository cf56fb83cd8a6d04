"""One line about a run in a list of runs, from the newest snapshot and the events after it.

Unlike a `History`, it needs no tables of trials, so a long log with a snapshot takes no longer than
a short one.
"""

from dataclasses import dataclass

from orchestrator.campaign.endings import RunState
from orchestrator.campaign.state import CampaignState
from orchestrator.campaign.status import status_of
from orchestrator.history.status_text import trials_text
from orchestrator.store import snapshots
from orchestrator.store.event_store import EventStore
from orchestrator.store.runs import Run


@dataclass(frozen=True, slots=True)
class Overview:
    """A run in a list."""

    began: float  # seconds since 1970
    state: RunState
    trials: str
    best: str
    tags: tuple[str, ...]


def read_overview(run: Run, store: EventStore) -> Overview:
    """Return the overview of a run from its open store.

    Raises RunError if the run has no log, and StoreError if the log cannot be read.
    """
    created, state = snapshots.current(run, store)
    recorded = run.recorded_settings(store).get("tags")
    notes = store.notes(run.name)
    tags = recorded if isinstance(recorded, list | tuple) else ()
    added = (tag for note in notes if note.trial is None for tag in note.tags)
    return Overview(
        began=created.time,
        state=_state_of_run(state),
        trials=trials_text(status_of(run.name, state)),
        best=_best(state),
        tags=tuple(dict.fromkeys([*map(str, tags), *added])),
    )


def _state_of_run(state: CampaignState) -> RunState:
    if not state.session.epoch:
        return RunState.NOT_STARTED
    return RunState(state.session.outcome) if state.session.outcome else RunState.UNFINISHED


def _best(state: CampaignState) -> str:
    if len(state.rules.goals.objectives) > 1:
        return f"front of {len(state.results.front.ordered)}"
    return "" if state.best_known is None else f"{state.best_known.value:.6g}"
