"""Tests of orchestrator/session/reports.py: no report of a trial is recorded twice."""

import pytest

from bbkb.orchestrator.campaign.state import CampaignState
from bbkb.orchestrator.campaign.transitions import apply
from bbkb.orchestrator.session.reports import RecordedReports
from bbkb.workers.messages import IntermediateValue, Reported, Success
from tests.orchestrator.campaign.short_logs import batch, dispatch, fold, session


def values_of(attempt: int, *steps: int) -> list[IntermediateValue]:
    return [IntermediateValue(0, attempt, Reported(step, step / 10)) for step in steps]


def recorded(
    campaign: CampaignState, reports: RecordedReports, attempt: int, *steps: int
) -> tuple[CampaignState, list[int]]:
    """Return the campaign after these reports, and the steps that were new."""
    new = reports.new(values_of(attempt, *steps), campaign.trainings)
    return apply(campaign, reports.take(new, 1.0)), [value.reported.step for value in new]


@pytest.mark.parametrize(
    ("has_checkpoints", "steps", "expected"),
    [
        (True, (3, 4, 5, 6), [5, 6]),
        (True, (5, 6), [5, 6]),
        (True, (1, 2), [1, 2]),  # its checkpoint was not found
        (False, (1, 2), [1, 2]),
        (False, (3, 5), [3, 5]),
    ],
)
def test_attempt_that_continues_repeats_no_step_in_the_log(
    has_checkpoints: bool, steps: tuple[int, ...], expected: list[int]
) -> None:
    reports = RecordedReports(has_checkpoints)
    campaign, first = recorded(fold(session(), batch(0, [5]), dispatch((0, 1))), reports, 1, 1, 2, 3, 4)
    assert first == [1, 2, 3, 4]
    _, new = recorded(campaign, reports, 2, *steps)
    assert new == expected


def test_adopted_attempt_repeats_no_report_with_its_outcome() -> None:
    before = RecordedReports(has_checkpoints=True)
    campaign, _ = recorded(fold(session(), batch(0, [5]), dispatch((0, 1))), before, 1, 1, 2, 3)
    after = RecordedReports(has_checkpoints=True)  # of the next session
    after.begin(campaign)
    campaign, new = recorded(campaign, after, 1, 4, 5)
    assert new == [4, 5]
    reports = tuple(value.reported for value in values_of(1, 1, 2, 3, 4, 5, 6))
    outcome = Success(0, 1, value=0.6, started=0.0, finished=1.0, worker="w", reports=reports)
    assert [reported.step for reported in after.take_rest(outcome, campaign.trainings)] == [6]
