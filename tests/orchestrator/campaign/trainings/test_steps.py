"""Tests of orchestrator/campaign/trainings/steps.py: what a budget of steps has counted."""

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.campaign.trainings.steps import Steps


def test_a_trial_counts_its_largest_step_once() -> None:
    steps = Steps().after_reports([(0, 1), (0, 2), (1, 1)]).after_reports([(0, 2), (0, 1)])
    assert steps.total == 3


def test_a_trial_that_reports_nothing_counts_as_one_step() -> None:
    assert Steps().after_end(7).total == 1


def test_reports_that_arrive_with_the_result_count() -> None:
    steps = Steps().after_reports([(0, 2)]).after_end(0, [(1, 0.5), (2, 0.6), (3, 0.7)])
    assert (steps.total, dict(steps.open)) == (3, {})


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 30))), st.sets(st.integers(0, 4)))
def test_it_is_the_sum_of_each_trials_largest_step(reports: list[tuple[int, int]], ended: set[int]) -> None:
    steps = Steps().after_reports(reports)
    for trial in ended:
        steps = steps.after_end(trial)
    largest = {trial: max([0, *(step for other, step in reports if other == trial)]) for trial in range(5)}
    assert steps.total == sum(max(1, steps) if trial in ended else steps for trial, steps in largest.items())


def test_the_next_report_is_expected_where_other_trials_reported() -> None:
    steps = Steps().after_reports([(0, 4), (0, 12), (0, 36), (1, 4)])
    assert [steps.until_next_report(step) for step in (4, 12)] == [8, 24]
    assert steps.until_next_report(36) == 24  # none has gone further: as from 12 to 36
    assert Steps().after_reports([(0, 1), (0, 2), (0, 3)]).until_next_report(3) == 1
    assert Steps().until_next_report(0) == 1


def test_trainings_of_many_reports_report_each_step() -> None:
    steps = Steps().after_reports((0, step) for step in range(2, 500, 2))
    assert len(steps.distinct) == 64
    assert [steps.until_next_report(step) for step in (1, 100, 400)] == [1, 1, 1]
