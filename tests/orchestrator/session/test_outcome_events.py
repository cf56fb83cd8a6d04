"""Tests of orchestrator/session/outcome_events.py: what the log gets of an outcome."""

import math

import pytest

from orchestrator.campaign.events import TrialFailed
from orchestrator.session.outcome_events import event_of
from orchestrator.session.reports import RecordedReports
from tests.orchestrator.campaign.short_logs import batch, dispatch, fold, session
from workers.messages import Success


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_is_a_failure_whatever_the_worker_says(value: float) -> None:
    running = fold(session(), batch(0, [5]), dispatch((0, 1)))
    outcome = Success(trial=0, attempt=1, value=value, started=0.0, finished=1.0, worker="w")
    event = event_of(outcome, running, RecordedReports(), 2.0)
    assert isinstance(event, TrialFailed)
    assert (event.failure, event.is_final) == ("invalid value", True)
    assert event.message == f"value must be a finite number, got {value}"
