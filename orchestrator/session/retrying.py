"""Queues failed trials again at the user's request: `bbkb resume --retry-failed`."""

import contextlib
import json
from collections.abc import Collection, Iterable

from orchestrator.campaign.events import BatchChosen, Event, PickedTrial, ReopenedTrial, TrialFailed, TrialsReopened
from orchestrator.campaign.state import CampaignState
from orchestrator.campaign.transitions import apply
from orchestrator.settings.model import Settings
from orchestrator.store import snapshots
from orchestrator.store.lease import take
from orchestrator.store.runs import Run
from workers.messages import FailureKind

EVERY_KIND = frozenset(FailureKind)


def failed_trials(events: Iterable[Event], kinds: Collection[FailureKind] = EVERY_KIND) -> tuple[ReopenedTrial, ...]:
    """Return the trials whose last attempt failed with one of `kinds`, sorted by index."""
    picks: dict[int, PickedTrial] = {}
    failed: dict[int, ReopenedTrial] = {}
    for event in events:
        if isinstance(event, BatchChosen):
            picks.update((pick.trial, pick) for pick in event.picks)
        elif isinstance(event, TrialFailed) and event.is_final:
            pick = picks[event.trial]
            failed[event.trial] = ReopenedTrial(
                trial=event.trial,
                arm=pick.arm,
                attempt=event.attempt,
                failure=event.failure,
                parameters=pick.parameters,
            )
        elif isinstance(event, TrialsReopened):
            for reopened in event.trials:
                failed.pop(reopened.trial, None)
    return tuple(failed[trial] for trial in sorted(failed) if FailureKind(failed[trial].failure) in kinds)


def reopen(run: Run, settings: Settings, kinds: Collection[FailureKind] = EVERY_KIND) -> tuple[int, CampaignState]:
    """Queue the failed trials of a run again for the next session.

    Returns the number of these trials and the campaign's state afterwards. Raises HeldError if a
    process is running the campaign, and StoreError if the log cannot be read or written.
    """
    with contextlib.ExitStack() as resources:
        store = resources.enter_context(run.store())
        writer = take(store, run.name, settings=json.dumps(settings.resolved()))
        resources.callback(writer.release)
        failed = failed_trials(store.read(run.name), kinds)
        _, state = snapshots.current(run, store)
        if failed:
            reopened = TrialsReopened(time=state.clock.last_time, trials=failed)
            writer.append([reopened])
            state = apply(state, reopened)
    return len(failed), state
