"""`benchmarks.asynchrony.course`: The utilisation of the workers and the regret of one campaign as
functions of time, from its log.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.asynchrony.course import Course, course
from orchestrator.campaign.events import CampaignCreated, Event
from orchestrator.campaign.rules import Rules


def course_of(seconds: list[float], slots: int) -> Course:
    """A queue in front of `slots` workers. Evaluation i is of arm i % 3, value −(i % 3), reward
    i/10 above it."""
    free, spans = [0.0] * slots, []
    for duration in seconds:
        begin = min(free)
        free[free.index(begin)] = begin + duration
        spans.append((begin, begin + duration))
    order = sorted(range(len(spans)), key=lambda i: spans[i][1])
    arms = np.array([i % 3 for i in order])
    return Course(
        slots=slots,
        optimum=0.0,
        arms=arms,
        started=np.array([spans[i][0] for i in order]),
        finished=np.array([spans[i][1] for i in order]),
        values=-arms.astype(float),
        rewards=np.array([-(i % 3) + i / 10 for i in order]),
        refreshes=0,
        idle_seconds={},
        strategy_seconds=0.0,
    )


SCHEDULES = st.tuples(st.lists(st.floats(0.1, 5.0), min_size=1, max_size=30), st.integers(1, 6))


@settings(max_examples=50, deadline=None)
@given(SCHEDULES, st.floats(0.0, 1.0))
def test_utilisation_of_two_spans_is_that_of_both_together(schedule: tuple[list[float], int], share: float) -> None:
    course = course_of(*schedule)
    middle, end = share * course.makespan, course.makespan
    busy = course.slots * end * course.utilisation(0.0, end)
    assert busy == pytest.approx(sum(schedule[0]))
    parts = [
        (b - a) * course.slots * course.utilisation(a, b) if b > a else 0.0 for a, b in ((0.0, middle), (middle, end))
    ]
    assert sum(parts) == pytest.approx(busy)


@settings(max_examples=50, deadline=None)
@given(SCHEDULES)
def test_no_worker_idles_until_the_last_evaluation_began_when_the_queue_is_never_empty(
    schedule: tuple[list[float], int],
) -> None:
    course = course_of(*schedule)
    assert course.least_seconds <= course.makespan * (1 + 1e-12)
    if course.last_start > 0.0:
        assert course.utilisation(0.0, course.last_start) == pytest.approx(1.0)


def test_regret_counts_what_is_over_by_then_and_nothing_else() -> None:
    course = course_of([1.0] * 4, 1)  # arms 0, 1, 2, 0 with rewards 0, −0.9, −1.8, 0.3
    times = [0.5, 1.0, 2.5, 3.0, 4.0, 9.0]
    assert course.done(times).tolist() == [0, 1, 2, 3, 4, 4]
    np.testing.assert_array_equal(course.average_regret(times), [np.nan, 0.0, 0.5, 1.0, 0.75, 0.75])
    np.testing.assert_array_equal(course.simple_regret(times), [np.nan, 0.0, 0.0, 0.0, 0.0, 0.0])


def test_regret_is_divided_by_the_results_there_were_when_an_evaluation_began() -> None:
    course = course_of([1.0, 2.0, 1.0, 1.0, 1.0], 2)  # begun at 0, 0, 1, 2, 2, with regrets 0, 1, 2, 0, 1
    np.testing.assert_allclose(course.regret_by_knowledge(), [0.2, 0.4, 0.2])


@settings(max_examples=50, deadline=None)
@given(SCHEDULES)
def test_the_parts_of_the_regret_add_up_to_its_mean(schedule: tuple[list[float], int]) -> None:
    course = course_of(*schedule)
    assert course.regret_by_knowledge().sum() == pytest.approx(course.average_regret([course.makespan])[0])


def test_the_recommended_arm_is_the_one_whose_rewards_were_best_on_the_mean() -> None:
    course = course_of([1.0] * 30, 1)
    lucky = replace(course, rewards=course.arms.astype(float))
    assert lucky.recommended_regret([0.0, 1.0, 30.0]).tolist()[1:] == [0.0, 2.0]
    assert np.isnan(lucky.recommended_regret([0.0])[0])


def test_a_log_that_is_not_of_a_whole_campaign_is_refused() -> None:
    created: Event = CampaignCreated(
        time=0.0,
        name="x",
        seed=0,
        arms=1,
        candidates_digest="",
        objective="",
        optimum=1.0,
        settings={"objective": {"direction": "maximize"}, "budget": {"evaluations": 1}, "workers": {}},
        rules=Rules(evaluations=1),
    )
    with pytest.raises(ValueError, match="one complete session"):
        course([created])
