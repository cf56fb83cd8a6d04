"""The outcome and the reason with which a session closes."""

from bbkb.orchestrator.campaign.commands import Close
from bbkb.orchestrator.campaign.endings import SessionOutcome, StopReason
from bbkb.orchestrator.campaign.state import CampaignState

SPENT = (StopReason.TIME_SPENT, StopReason.STEPS_SPENT)  # budgets other than that of evaluations


def close_stopped(state: CampaignState, reason: StopReason) -> Close:
    """Return the end of a session that stops for `reason`."""
    if reason is StopReason.INTERRUPTED:
        return Close(SessionOutcome.INTERRUPTED, "stopped on request, after its running evaluations")
    is_spent_in_vain = not _has_result(state) and (state.totals.failed > 0 or reason in SPENT)
    if reason is StopReason.EVERYTHING_FAILS or (is_spent_in_vain and reason is not StopReason.TARGET_REACHED):
        return _failed(state, reason)
    return Close(SessionOutcome.FINISHED, reason)


def close_complete(state: CampaignState) -> Close:
    """Return the end of a session that has no work left."""
    if _has_result(state):
        return Close(SessionOutcome.FINISHED, state.batch.stalled or "budget spent")
    stalled = state.batch.stalled
    if stalled and state.remaining and not state.totals.chosen:
        rule = "the strategy must choose at least one candidate before there is any result"
        return Close(SessionOutcome.FAILED, f"{rule}, got none, for the reason {stalled!r}: correct its `ask`")
    return _failed(state, "budget spent")


def _has_result(state: CampaignState) -> bool:
    return state.totals.succeeded > 0 or state.totals.stopped > 0


def _failed(state: CampaignState, spent: str) -> Close:
    """Return the end of a session without a result. `spent`: the reason if none of them failed."""
    if state.session.failed:
        first = state.session.first_failure or "no message"
        count = state.session.failed
        failed = "the only evaluation" if count == 1 else f"all {count} evaluations"
        reason = f"{failed} of this session failed{'' if count == 1 else '; the first one'} with {first}"
    elif state.totals.failed:
        reason = f"{spent}, and none of {state.totals.failed} evaluations succeeded"
    else:
        reason = f"{spent} before any evaluation ended"
    return Close(SessionOutcome.FAILED, reason)
