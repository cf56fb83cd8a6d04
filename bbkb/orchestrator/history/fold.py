"""Folds a campaign's event log into tables and totals, the only source of the status, the report,
the export and the live page.

`History` consists of the `campaign.state.CampaignState` that the run itself computes, and of tables
that a state of limited size cannot contain: trials, attempts, refreshes and sessions. All totals
come from that state, so `bbkb status` and the report cannot disagree. `verify` counts
independently, on purpose.

`advance` adds one event, so the cost of following a growing log depends only on its new events. It
modifies the history in place: copying the tables for each event would cost as much as the whole
log. Times are on the executor's clock.
"""

import functools
import itertools
from collections.abc import Iterable

from bbkb.orchestrator.campaign.events import CampaignCreated, Event
from bbkb.orchestrator.campaign.state import CampaignState
from bbkb.orchestrator.campaign.transitions import apply_recorded
from bbkb.orchestrator.history.tables import History
from bbkb.orchestrator.history.updates import record

__all__ = ["History", "advance", "begin", "fold"]


def fold(events: Iterable[Event], stored: int = 0, state: CampaignState | None = None) -> History:
    """Fold a whole log. Raises ValueError if it does not begin with `CampaignCreated`.

    Args:
        events: all events of the log.
        stored: the number of events that `state` contains.
        state: the campaign's state from a snapshot, if there is one. The first `stored` events then
            need not be applied again, which saves half of the time.
    """
    iterator = iter(events)
    created = next(iterator, None)
    if not isinstance(created, CampaignCreated):
        raise ValueError("the log does not begin with the creation of a campaign: it is empty or is not a bbkb log")
    history = begin(created)
    if state is not None:
        for event in itertools.islice(iterator, max(0, stored - 1)):
            record(history, event)
        history.campaign = state
    return functools.reduce(advance, iterator, history)


def begin(created: CampaignCreated) -> History:
    """Return the history after the first event."""
    return History(created, created.settings, apply_recorded(CampaignState(), created))


def advance(history: History, event: Event) -> History:
    """Add one event to `history`, in place, and return it."""
    history.campaign = apply_recorded(history.campaign, event)
    record(history, event)
    return history
