"""The state after any course of events: invariants, crashes, adopted and duplicate results,
totals."""

import functools
from collections.abc import Sized
from dataclasses import replace

from bbkb.orchestrator.campaign.commands import Dispatch
from bbkb.orchestrator.campaign.events import Event, PlacesChanged, StopReason, StopRequested
from bbkb.orchestrator.campaign.policy import decide
from bbkb.orchestrator.campaign.state import CampaignState, is_running
from bbkb.orchestrator.campaign.transitions import apply
from bbkb.workers.messages import Trial
from tests.orchestrator.campaign.short_logs import (
    asynchronous,
    batch,
    dispatch,
    fold,
    refresh,
    session,
    success,
)


def test_late_or_duplicate_result_is_not_expected() -> None:
    state = fold(session(slots=1), batch(0, [5]), dispatch((0, 2)))
    late, current = (success(0, attempt=attempt) for attempt in (1, 2))
    assert not is_running(state, late.trial, late.attempt)
    assert is_running(state, current.trial, current.attempt)
    assert not is_running(apply(state, success(0, attempt=2)), current.trial, current.attempt)


def test_running_trials_are_retried_first_after_a_crash() -> None:
    state = fold(session(slots=2), batch(0, [5, 6, 7]), dispatch((0, 1), (1, 1)), success(1), session(slots=3, epoch=2))
    assert decide(state, now=2.0) == Dispatch((Trial(0, 5, {}, 2), Trial(2, 7, {}, 1)))


def test_state_keeps_no_entry_of_a_trial_that_was_learned() -> None:
    state = fold(session(slots=1, evaluations=10_000))
    entries: list[dict[str, int]] = []
    for trial in range(200):
        for event in (batch(trial, [3]), dispatch((trial, 1)), success(trial)):
            state = apply(state, event)
        state = apply(state, refresh(trial, time=1.0, round_=trial + 1))
        entries.append({name: len(value) for name, value in vars(state).items() if isinstance(value, Sized)})
    assert state.totals.succeeded == state.totals.chosen == 200
    assert entries[-1] == entries[99]


def test_adopted_trial_continues_under_its_attempt() -> None:
    state = asynchronous(batch(0, [5, 6], limit=2), dispatch((0, 1), (1, 1)))
    again = apply(state, replace(session(slots=2, epoch=2, strategy={"mode": "async"}), adopted=(1,)))
    assert decide(again, now=0.0) == Dispatch((Trial(0, 5, {}, 2),))
    assert is_running(again, 1, 1)


def test_slots_follow_the_capacity_of_the_cluster() -> None:
    grown: list[Event] = [session(slots=2), PlacesChanged(time=10.0, slots=6), PlacesChanged(time=20.0, slots=3)]
    stop = StopRequested(time=30.0, reason=StopReason.INTERRUPTED)
    state = functools.reduce(apply, [*grown, stop], CampaignState())
    assert state.session.slots == 3
    assert state.clock.capacity_seconds == 10 * 2 + 10 * 6 + 10 * 3
