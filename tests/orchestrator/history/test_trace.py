"""The thinned trace: bounded, with every improvement and the extremes of all neighbors."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from bbkb.orchestrator.history.trace import MOST_BUCKETS, Trace

REWARDS = st.lists(st.floats(-1e9, 1e9), max_size=300)


def trace_of(rewards: list[float]) -> Trace[int]:
    trace: Trace[int] = Trace()
    for item, reward in enumerate(rewards):
        trace.add(reward, item)
    return trace


@given(REWARDS)
@settings(max_examples=60, deadline=None)
def test_trace_of_few_results_keeps_all_in_order(rewards: list[float]) -> None:
    assert [(point.place - 1, point.reward) for point in trace_of(rewards).points()] == list(enumerate(rewards))


@given(REWARDS)
@settings(max_examples=60, deadline=None)
def test_trace_improvements_are_the_running_maximum(rewards: list[float]) -> None:
    best = [place for place, reward in enumerate(rewards) if all(reward > before for before in rewards[:place])]
    assert [point.item for point in trace_of(rewards).improvements] == best


@given(st.lists(st.tuples(st.floats(-1e9, 1e9), st.booleans()), max_size=300))
@settings(max_examples=60, deadline=None)
def test_trace_has_infeasible_results_but_not_as_improvements(results: list[tuple[float, bool]]) -> None:
    trace: Trace[int] = Trace()
    best, improvements = -math.inf, []
    for item, (reward, is_feasible) in enumerate(results):
        trace.add(reward, item, is_feasible)
        if is_feasible and reward > best:
            best = reward
            improvements.append(item)
    assert [point.item for point in trace.improvements] == improvements
    assert [point.item for point in trace.points()] == list(range(len(results)))


@given(st.integers(MOST_BUCKETS, 5 * MOST_BUCKETS), st.integers(0, 9))
@settings(max_examples=20, deadline=None)
def test_trace_is_bounded_and_keeps_the_extremes_of_every_bucket(count: int, seed: int) -> None:
    rewards = [float((place * 7919 + seed * 104729) % 10007) for place in range(count)]
    trace = trace_of(rewards)
    points = list(trace.points())
    assert trace.count == count
    assert len(points) <= 2 * MOST_BUCKETS
    traced = {point.item for point in points}
    for first in range(0, count, trace.width):
        bucket = range(first, min(first + trace.width, count))
        assert max(rewards[place] for place in bucket) in {rewards[place] for place in bucket if place in traced}
        assert min(rewards[place] for place in bucket) in {rewards[place] for place in bucket if place in traced}
