"""How a session ends: budget, target, a request to stop, failures only, nothing left to choose."""

import pytest

from bbkb.orchestrator.campaign.commands import Await, Close, Dispatch, Stop, Tell
from bbkb.orchestrator.campaign.events import Event, SessionClosed, SessionOutcome, StopReason, StopRequested
from bbkb.orchestrator.campaign.failures import failures_before_giving_up
from bbkb.orchestrator.campaign.policy import decide
from bbkb.orchestrator.campaign.transitions import apply
from bbkb.workers.messages import FailureKind, Trial
from tests.orchestrator.campaign.short_logs import batch, dispatch, failure, fold, refresh, session, success


def test_target_stops_the_campaign_after_running_evaluations() -> None:
    state = fold(session(slots=2, target=0.9), batch(0, [5, 6, 7]), dispatch((0, 1), (1, 1)), success(0, 0.95))
    assert decide(state, now=1.0) == Stop(StopReason.TARGET_REACHED)
    state = apply(state, StopRequested(time=1.0, reason=StopReason.TARGET_REACHED))
    assert decide(state, now=1.0) == Await()
    assert decide(apply(state, success(1)), now=1.0) == Close(SessionOutcome.FINISHED, "target reached")


def test_time_budget_counts_sessions_without_the_pauses_between() -> None:
    first = fold(
        session(hours=1.0), batch(0, [5]), dispatch((0, 1)), success(0, time=1800.0),
        SessionClosed(time=1800.0, outcome=SessionOutcome.INTERRUPTED, reason=""),
    )  # fmt: skip
    again = apply(first, session(time=1e6, epoch=2, hours=1.0))
    assert decide(again, now=1e6 + 1700.0) != Stop(StopReason.TIME_SPENT)
    assert decide(again, now=1e6 + 1801.0) == Stop(StopReason.TIME_SPENT)


def test_last_results_of_a_spent_budget_are_learned() -> None:
    log: list[Event] = [
        session(slots=2, hours=1.0, strategy={"mode": "async"}),
        batch(0, [5, 6]),
        dispatch((0, 1), (1, 1)),
    ]
    ends: list[Event] = [success(0, time=3599.0), StopRequested(time=3600.0, reason=StopReason.TIME_SPENT)]
    state = fold(*log, *ends)
    assert decide(state, now=3600.0) == Await()
    state = apply(state, success(1, time=3650.0))
    assert decide(state, now=3650.0) == Tell(tuple(state.finished))
    learned = apply(state, refresh(0, 1, time=3651.0))
    assert decide(learned, now=3651.0) == Close(SessionOutcome.FINISHED, "time budget spent")


@pytest.mark.parametrize("reason", [StopReason.TIME_SPENT, StopReason.STEPS_SPENT])
def test_spent_budget_without_any_success_is_a_failure(reason: StopReason) -> None:
    stop = StopRequested(time=2.0, reason=reason)
    tried: list[Event] = [session(slots=1), batch(0, [5]), dispatch((0, 1))]
    close = decide(fold(*tried, failure(0, FailureKind.ERROR, True), stop), now=2.0)
    assert close == Close(SessionOutcome.FAILED, "the only evaluation of this session failed with error: why")
    assert decide(fold(session(slots=1), stop), now=2.0) == Close(
        SessionOutcome.FAILED, f"{reason} before any evaluation ended"
    )
    assert decide(fold(*tried, success(0), stop), now=2.0) == Close(SessionOutcome.FINISHED, reason)


def test_interrupt_is_not_delayed_by_a_last_refresh() -> None:
    log: list[Event] = [session(slots=1, strategy={"mode": "async"}), batch(0, [5]), dispatch((0, 1))]
    state = fold(*log, StopRequested(time=0.5, reason=StopReason.INTERRUPTED), success(0))
    assert isinstance(decide(state, now=1.0), Close)


def test_interrupted_batch_is_not_learned_before_a_resume() -> None:
    events: list[Event] = [
        session(slots=1), batch(0, [5, 6]), dispatch((0, 1)),
        StopRequested(time=0.5, reason=StopReason.INTERRUPTED), success(0),
    ]  # fmt: skip
    reason = "stopped on request, after its running evaluations"
    assert decide(fold(*events), now=1.0) == Close(SessionOutcome.INTERRUPTED, reason)
    closed = SessionClosed(time=1.0, outcome=SessionOutcome.INTERRUPTED, reason="interrupted")
    state = fold(*events, closed, session(slots=1, epoch=2, time=5.0))
    assert decide(state, now=5.0) == Dispatch((Trial(1, 6, {}, 1),))


def test_failing_campaign_stops_with_the_first_cause() -> None:
    state = fold(session(slots=1, evaluations=100), batch(0, list(range(100))))
    for trial in range(100):
        if decide(state, now=0.0) == Stop(StopReason.EVERYTHING_FAILS):
            break
        state = apply(state, dispatch((trial, 1)))
        state = apply(state, failure(trial, FailureKind.INVALID_VALUE, True))
    assert trial == failures_before_giving_up(state.session.slots) < 100
    state = apply(state, StopRequested(time=1.0, reason=StopReason.EVERYTHING_FAILS))
    close = decide(state, now=1.0)
    assert isinstance(close, Close)
    assert close.outcome == "failed"
    assert "invalid value: why" in close.reason


def test_strategy_with_nothing_to_pull_ends_the_campaign() -> None:
    state = fold(
        session(slots=1), batch(0, [5]), dispatch((0, 1)), success(0),
        refresh(0, time=1.0), batch(1, [], reason="no arm is left"),
    )  # fmt: skip
    assert decide(state, now=1.0) == Close(SessionOutcome.FINISHED, "no arm is left")
