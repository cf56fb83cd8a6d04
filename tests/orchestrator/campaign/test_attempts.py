"""`bbkb.orchestrator.campaign.state`: Attempts as the campaign's state remembers them: running, best
so far, and ended recently.
"""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bbkb.orchestrator.campaign.state import place_between

DAY = 86400.0
times = st.floats(0.0, 1e6).map(lambda it: round(it, 3))


def test_times_of_a_correct_clock_are_unchanged() -> None:
    assert place_between(105.0, 108.0, dispatched=104.0, arrived=109.0) == (105.0, 108.0)


@pytest.mark.parametrize("wrong_by", [-DAY, DAY])
def test_times_of_a_wrong_clock_are_moved_into_the_attempt(wrong_by: float) -> None:
    started, finished = place_between(105.0 + wrong_by, 108.0 + wrong_by, dispatched=104.0, arrived=109.0)
    assert 104.0 <= started <= finished <= 109.0
    assert finished - started == 3.0


@pytest.mark.parametrize("time", [math.nan, math.inf, -math.inf])
def test_times_of_a_broken_clock_are_those_of_the_attempt(time: float) -> None:
    assert place_between(time, time, dispatched=104.0, arrived=109.0) == (104.0, 109.0)


@given(started=times, finished=times, dispatched=times, waited=times)
def test_evaluation_lies_between_dispatch_and_arrival(
    started: float, finished: float, dispatched: float, waited: float
) -> None:
    arrived = dispatched + waited
    first, last = place_between(started, finished, dispatched, arrived)
    assert dispatched <= first <= last <= arrived
    assert last - first == pytest.approx(min(max(0.0, finished - started), waited), abs=1e-6)
