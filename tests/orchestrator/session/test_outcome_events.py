"""Tests of orchestrator/session/outcome_events.py: the events of an outcome."""

import math
from typing import Any

import pytest

from bbkb.orchestrator.campaign.events import TrialFailed, TrialSucceeded
from bbkb.orchestrator.session.outcome_events import event_of
from bbkb.orchestrator.session.reports import RecordedReports
from bbkb.workers.messages import Success
from tests.orchestrator.campaign.short_logs import batch, dispatch, fold, session
from tests.present import of_type


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_value_that_is_not_finite_is_always_a_failure(value: float) -> None:
    running = fold(session(), batch(0, [5]), dispatch((0, 1)))
    outcome = Success(trial=0, attempt=1, value=value, started=0.0, finished=1.0, worker="w")
    event = of_type(TrialFailed, event_of(outcome, running, RecordedReports(), 2.0))
    assert (event.failure, event.is_final) == ("invalid value", True)
    assert event.message == f"value must be a finite number, got {value}"


def test_reports_of_a_worker_of_an_older_version_are_pairs_without_metrics() -> None:
    running = fold(session(), batch(0, [5]), dispatch((0, 1)))
    pairs: Any = [(1, 0.25), (2, 0.5)]
    outcome = Success(trial=0, attempt=1, value=0.5, started=0.0, finished=1.0, worker="w", reports=pairs)
    event = of_type(TrialSucceeded, event_of(outcome, running, RecordedReports(), 2.0))
    assert event.reports == ((1, 0.25), (2, 0.5))
    assert event.report_metrics == ()
