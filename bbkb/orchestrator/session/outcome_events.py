"""Turns outcomes of attempts into events."""

from collections.abc import Sequence
from math import isfinite  # bound here: an objective that runs in this process may replace it in `math`
from typing import Any

from bbkb.orchestrator.campaign.attempts import place_between
from bbkb.orchestrator.campaign.events import AttemptEnded, TrialFailed, TrialStopped, TrialSucceeded
from bbkb.orchestrator.campaign.same_fields import same_fields
from bbkb.orchestrator.campaign.state import CampaignState, is_final, knows_remark
from bbkb.orchestrator.session.reports import RecordedReports
from bbkb.workers.messages import Failure, FailureKind, Outcome, Reported, Stopped, Success


def event_of(
    outcome: Outcome, campaign: CampaignState, reports: RecordedReports, now: float, cause: str = ""
) -> AttemptEnded:
    """Return the event that records `outcome`, which the campaign must expect.

    `campaign` is the state before the outcome; it decides whether a failure is final and which
    remarks are new. `reports` discards the attempt. `now` is the executor's time in seconds, and
    `cause` the reason if the campaign stopped the attempt.
    """
    started, finished = place_between(outcome.started, outcome.finished, campaign.running[outcome.trial].since, now)
    times = {"time": now, "started": started, "finished": finished}
    match outcome:
        # the objective may have modified the worker process, which makes its check unreliable
        case Success() if not isfinite(outcome.value):
            message = f"value must be a finite number, got {outcome.value}"
            kind = FailureKind.INVALID_VALUE
            reports.forget(outcome)
            return _event(TrialFailed, outcome, **times, failure=kind.value, message=message, is_final=True)
        case Stopped():
            further = _further_reports(reports.take_rest(outcome, campaign.trainings))
            return _event(TrialStopped, outcome, **times, **further, cause=str(cause))
        case Success():
            further = _further_reports(reports.take_rest(outcome, campaign.trainings))
            remark = "" if knows_remark(campaign, outcome.remark) else outcome.remark
            return _event(TrialSucceeded, outcome, **times, **further, remark=remark)
        case Failure():
            reports.forget(outcome)
            final = is_final(campaign, outcome)
            return _event(TrialFailed, outcome, **times, failure=outcome.kind.value, is_final=final)


def _event(kind: type[AttemptEnded], outcome: Outcome, **others: Any) -> AttemptEnded:
    shared = same_fields(outcome, kind)
    shared.pop("kind", None)  # a failure's kind is `failure` in its event
    return kind(**{**shared, **others})


def _further_reports(reports: Sequence[Reported]) -> dict[str, Any]:
    """Return the event fields for reports that arrived with an outcome."""
    return {
        "reports": tuple(reported[:2] for reported in reports),
        "report_metrics": tuple((reported.step, dict(reported.metrics)) for reported in reports if reported.metrics),
    }
