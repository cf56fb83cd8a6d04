"""Queues failed trials again at the user's request: `bbkb resume --retry-failed`."""

import contextlib
import json
from collections.abc import Collection

from orchestrator.campaign.events import ReopenedTrial, TrialsReopened
from orchestrator.campaign.state import CampaignState
from orchestrator.campaign.transitions import apply
from orchestrator.history.reading import read_history
from orchestrator.history.tables import History
from orchestrator.settings.model import Settings
from orchestrator.store.lease import take
from orchestrator.store.runs import Run
from workers.messages import FailureKind

EVERY_KIND = frozenset(FailureKind)


def failed_trials(history: History, kinds: Collection[FailureKind] = EVERY_KIND) -> tuple[ReopenedTrial, ...]:
    """Return the trials whose last attempt failed with one of `kinds`, sorted by index."""
    failed = (
        ReopenedTrial(
            trial=row.trial,
            arm=row.arm,
            attempt=row.attempts,
            failure=row.error.partition(":")[0],
            parameters=row.parameters,
            step=max(1, row.training.last_step),
        )
        for row in history.trials
        if row.status == "failed"
    )
    return tuple(trial for trial in failed if FailureKind(trial.failure) in kinds)


def reopen(run: Run, settings: Settings, kinds: Collection[FailureKind] = EVERY_KIND) -> tuple[int, CampaignState]:
    """Queue the failed trials of a run again for the next session.

    Returns the number of these trials and the campaign's state afterwards. Raises HeldError if a
    process is running the campaign, and StoreError if the log cannot be read or written.
    """
    with contextlib.ExitStack() as resources:
        store = resources.enter_context(run.store())
        writer = take(store, run.name, settings=json.dumps(settings.resolved()))
        resources.callback(writer.release)
        history = read_history(run)
        failed = failed_trials(history, kinds)
        state = history.campaign
        if failed:
            reopened = TrialsReopened(time=state.clock.last_time, trials=failed)
            writer.append([reopened])
            state = apply(state, reopened)
    return len(failed), state
