"""What the log says about an outcome of an attempt, and about a batch."""

import math
from collections.abc import Sequence
from dataclasses import replace

from objectives.objective import Candidates
from orchestrator.bandit.strategy import Pick
from orchestrator.campaign.attempts import placed
from orchestrator.campaign.events import AttemptEnded, PickedTrial, TrialFailed, TrialStopped, TrialSucceeded
from orchestrator.campaign.state import CampaignState, is_final, knows_remark
from orchestrator.session.reports import RecordedReports
from workers.messages import Outcome, Stopped, Success


def event_of(outcome: Outcome, campaign: CampaignState, reports: RecordedReports, now: float) -> AttemptEnded:
    """The event that records `outcome`, which the campaign expects; `reports` forgets the attempt.

    Args:
        outcome: what the executor gave.
        campaign: the state before it: it says whether a failure is final, and which remarks are known.
        reports: the intermediate values that were recorded before.
        now: the executor's time, seconds.

    """
    times = placed(outcome.started, outcome.finished, campaign.running[outcome.trial].since, now)
    outcome = replace(outcome, started=times[0], finished=times[1])
    if isinstance(outcome, Stopped):
        return TrialStopped(
            time=now,
            trial=outcome.trial,
            attempt=outcome.attempt,
            value=outcome.value,
            step=outcome.step,
            started=outcome.started,
            finished=outcome.finished,
            worker=outcome.worker,
            reports=reports.left(outcome),
        )
    if isinstance(outcome, Success):
        return TrialSucceeded(
            time=now,
            trial=outcome.trial,
            attempt=outcome.attempt,
            value=outcome.value,
            started=outcome.started,
            finished=outcome.finished,
            worker=outcome.worker,
            metrics=outcome.metrics,
            reports=reports.left(outcome),
            remark="" if knows_remark(campaign, outcome.remark) else outcome.remark,
        )
    return TrialFailed(
        time=now,
        trial=outcome.trial,
        attempt=outcome.attempt,
        failure=outcome.kind.value,
        message=outcome.message,
        is_final=is_final(campaign, outcome),
        started=outcome.started,
        finished=outcome.finished,
        worker=outcome.worker,
    )


def picked_trials(picks: Sequence[Pick], first: int, candidates: Candidates) -> tuple[PickedTrial, ...]:
    """The trials of a batch, numbered from `first`, with their parameters and why each was picked."""
    return tuple(
        PickedTrial(
            trial=trial,
            arm=pick.arm,
            parameters=candidates.parameters(pick.arm),
            mean=_known(pick.mean),
            width=_known(pick.width),
            variance=_known(pick.variance),
        )
        for trial, pick in enumerate(picks, start=first)
    )


def _known(number: float) -> float | None:
    """A reason for a pick; None where the strategy gives NaN for having none."""
    return None if math.isnan(number) else number
