"""A summary of a run for a list of runs, from the newest snapshot and the events after it.

Unlike a `History`, it needs no tables of trials, so a long log with a snapshot takes no longer than
a short one.
"""

from dataclasses import dataclass

from bbkb.orchestrator.campaign.events import CampaignCreated, RunState
from bbkb.orchestrator.campaign.settings import Settings
from bbkb.orchestrator.campaign.state import CampaignState
from bbkb.orchestrator.campaign.status import Status, status_of
from bbkb.orchestrator.store import snapshots
from bbkb.orchestrator.store.runs import Run
from bbkb.orchestrator.store.store import EventStore


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
    """Return the overview of a run from its open store.

    Raises RunError if the run has no log, and StoreError if the log cannot be read.
    """
    created, state = snapshots.current(run, store)
    return overview_of(created, state, run.recorded_settings(store))


def overview_of(created: CampaignCreated, state: CampaignState, settings: Settings) -> Overview:
    """Return the overview of a campaign: its first event, its state after the last event, and
    the settings of its newest session."""
    session = state.session
    return Overview(
        began=created.time,
        state=RunState(session.outcome or (RunState.UNFINISHED if session.epoch else RunState.NOT_STARTED)),
        status=status_of(created.name, state),
        best=_best(state),
        tags=settings.tags,
        strategy=settings.strategy["name"],
    )


def _best(state: CampaignState) -> str:
    if len(state.settings.goals.objectives) > 1:
        return f"front of {len(state.results.front.ordered)}"
    return "" if state.best_known is None else f"{state.best_known.value:.6g}"
