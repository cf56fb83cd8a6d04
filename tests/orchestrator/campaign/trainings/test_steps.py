"""Tests of orchestrator/campaign/trainings/steps.py: the steps that a budget has counted."""

from hypothesis import given
from hypothesis import strategies as st

from bbkb.orchestrator.campaign.trainings import Steps
from tests.reported import reported


def reported_at(*reports: tuple[int, int]) -> Steps:
    """Return a draft after these reports of a trial at a step."""
    steps = Steps().draft()
    steps.report([reported(step, 0.5, trial) for trial, step in reports])
    return steps


def test_steps_count_reports_that_arrive_with_the_result() -> None:
    steps = reported_at((0, 2))
    steps.end(0, [reported(step, 0.5) for step in (1, 2, 3)])
    assert (steps.total, dict(steps.open)) == (3, {})


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 30))), st.sets(st.integers(0, 4)))
def test_steps_count_the_largest_step_of_each_trial(reports: list[tuple[int, int]], ended: set[int]) -> None:
    steps = reported_at(*reports[:2])
    steps.report([reported(step, 0.5, trial) for trial, step in reports[2:]])
    for trial in ended:
        steps.end(trial)
    largest = {trial: max([0, *(step for other, step in reports if other == trial)]) for trial in range(5)}
    assert steps.total == sum(max(1, steps) if trial in ended else steps for trial, steps in largest.items())


def test_next_report_is_expected_at_the_steps_of_other_trials() -> None:
    steps = reported_at((0, 4), (0, 12), (0, 36), (1, 4))
    assert [steps.until_next_report(step) for step in (4, 12)] == [8, 24]
    assert steps.until_next_report(36) == 24  # none has gone further: as from 12 to 36
    assert reported_at((0, 1), (0, 2), (0, 3)).until_next_report(3) == 1
    assert Steps().until_next_report(0) == 1


def test_next_report_is_the_next_step_after_many_distinct_steps() -> None:
    steps = reported_at(*((0, step) for step in range(2, 500, 2)))
    assert len(steps.distinct) == 64
    assert [steps.until_next_report(step) for step in (1, 100, 400)] == [1, 1, 1]
