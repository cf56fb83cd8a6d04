"""Commands in batch mode: choices, dispatches and refreshes, and their order."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bbkb.orchestrator.bandit.strategy import Observation
from bbkb.orchestrator.campaign.commands import (
    Ask,
    Await,
    Begin,
    Close,
    Dispatch,
    Tell,
)
from bbkb.orchestrator.campaign.events import SessionClosed, SessionOutcome, StopReason, StopRequested
from bbkb.orchestrator.campaign.policy import MOST_PICKS, decide
from bbkb.orchestrator.campaign.settings import Budget, Settings
from bbkb.orchestrator.campaign.state import CampaignState, FinishedTrial, Session, Totals
from bbkb.orchestrator.campaign.transitions import apply
from bbkb.workers.messages import FailureKind, Trial
from tests.orchestrator.campaign.short_logs import (
    batch,
    dispatch,
    existing_data,
    failure,
    fold,
    fold_from,
    refresh,
    session,
    success,
)


def test_large_batch_is_chosen_in_parts_and_learned_whole() -> None:
    state = fold(session(slots=2, evaluations=MOST_PICKS + 3))
    assert decide(state, now=0.0) == Ask(pending=(), limit=MOST_PICKS)
    state = apply(state, batch(0, [5] * MOST_PICKS, limit=MOST_PICKS))
    assert isinstance(decide(state, now=0.0), Dispatch)
    state = apply(state, dispatch(*((trial, 1) for trial in range(MOST_PICKS))))
    assert decide(state, now=0.0) == Ask(pending=(5,) * MOST_PICKS, limit=3)  # no worker waits for the end of the part
    ended = fold_from(state, *(success(trial) for trial in range(MOST_PICKS)))
    assert decide(ended, now=1.0) == Ask(
        pending=(5,) * MOST_PICKS, limit=3
    )  # not learned yet: the batch has more to come
    assert isinstance(decide(apply(ended, batch(MOST_PICKS, [], limit=3)), now=1.0), Tell)  # the strategy ended it


def test_enqueued_trials_are_learned_before_the_first_batch() -> None:
    state = fold(session(slots=1), batch(0, [5], limit=1, is_enqueued=True), dispatch((0, 1)))
    assert isinstance(decide(state, now=0.0), Await)
    assert isinstance(decide(apply(state, success(0)), now=1.0), Tell)


def test_next_trial_of_the_batch_takes_a_freed_slot() -> None:
    state = fold(session(slots=2), batch(0, [5, 6, 7]), dispatch((0, 1), (1, 1)))
    assert decide(state, now=0.0) == Await()
    assert decide(apply(state, success(1)), now=1.0) == Dispatch((Trial(2, 7, {}, 1),))


def test_strategy_learns_after_the_whole_batch() -> None:
    state = fold(session(slots=2), batch(0, [5, 6]), dispatch((0, 1), (1, 1)), success(1, 0.25))
    assert decide(state, now=1.0) == Await()
    state = apply(state, success(0, 0.5))
    assert decide(state, now=1.0) == Tell(
        (FinishedTrial(1, Observation(6, 0.25)), FinishedTrial(0, Observation(5, 0.5)))
    )


def test_minimized_values_reach_the_strategy_with_the_opposite_sign() -> None:
    state = fold(
        session(direction="minimize"), batch(0, [5, 6]), dispatch((0, 1), (1, 1)), success(0, 3.0), success(1, 2.0)
    )
    assert [finished.observation.reward for finished in state.finished] == [-3.0, -2.0]
    assert state.results.best is not None
    assert state.results.best.value == 2.0


def test_failed_trial_is_learned_as_not_evaluated() -> None:
    state = fold(session(slots=1), batch(0, [5]), dispatch((0, 1)), failure(0, FailureKind.INVALID_VALUE, True))
    assert decide(state, now=1.0) == Tell((FinishedTrial(0, Observation(5, None)),))


@pytest.mark.parametrize(("direction", "sign"), [("maximize", 1.0), ("minimize", -1.0)])
def test_existing_data_are_learned_first_without_cost(direction: str, sign: float) -> None:
    state = fold(existing_data(2.0, -1.0), session(direction=direction))
    assert decide(state, 0.0) == Begin(
        (Observation(0, sign * 2.0, is_existing=True), Observation(1, sign * -1.0, is_existing=True))
    )
    begun = apply(state, refresh(time=0.0))
    assert decide(begun, 0.0) == Ask(pending=(), limit=10)
    assert (begun.totals, begun.results.best, begun.results.existing.not_learned) == (Totals(), None, None)
    assert (begun.results.existing.count, begun.results.existing.unmatched) == (2, 3)


def test_existing_data_are_learned_by_the_next_session_after_an_early_stop() -> None:
    stopped = fold(existing_data(1.0), session(), StopRequested(time=0.0, reason=StopReason.INTERRUPTED))
    assert decide(stopped, 0.0) == Close(
        SessionOutcome.INTERRUPTED, "stopped on request, after its running evaluations"
    )
    again = apply(
        apply(stopped, SessionClosed(time=0.0, outcome=SessionOutcome.INTERRUPTED, reason="")), session(epoch=2)
    )
    assert decide(again, 0.0) == Begin((Observation(0, 1.0, is_existing=True),))


@settings(max_examples=30, deadline=None)
@given(queued=st.integers(1, 6), evaluations=st.integers(0, 6))
def test_lowered_budget_limits_dispatching(queued: int, evaluations: int) -> None:
    backlog = tuple(Trial(trial, trial, {}, 1) for trial in range(queued))
    state = CampaignState(
        settings=Settings(name="c", budget=Budget(evaluations=evaluations)),
        session=Session(epoch=1, slots=6),
        totals=Totals(chosen=queued),
        backlog=backlog,
    )
    command = decide(state, now=0.0)
    sent = len(command.trials) if isinstance(command, Dispatch) else 0
    assert sent == min(queued, evaluations)
