"""The next command of a campaign in both modes and at its end; its goals."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bbkb import Constraint, Objective
from bbkb.orchestrator.annotations import written
from bbkb.orchestrator.bandit.goals import Goals
from bbkb.orchestrator.bandit.strategy import Observation
from bbkb.orchestrator.campaign.events import (
    ComputingBegan,
    Event,
    SessionClosed,
    SessionOutcome,
    StopReason,
    StopRequested,
)
from bbkb.orchestrator.campaign.goals import CampaignGoals
from bbkb.orchestrator.campaign.policy import (
    MOST_PICKS,
    Ask,
    Await,
    Begin,
    Close,
    Dispatch,
    Stop,
    Tell,
    decide,
    failures_before_giving_up,
)
from bbkb.orchestrator.campaign.settings import Budget, Settings
from bbkb.orchestrator.campaign.state import CampaignState, FinishedTrial, Session, Totals
from bbkb.orchestrator.campaign.status import idle_seconds
from bbkb.orchestrator.campaign.transitions import apply
from bbkb.workers.messages import FailureKind, Trial
from tests.examples import examples
from tests.orchestrator.events import (
    asynchronous,
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


def test_async_mode_picks_for_a_free_worker_while_others_run() -> None:
    state = asynchronous(batch(0, [5, 6], limit=2), dispatch((0, 1), (1, 1)), success(1))
    assert decide(state, now=1.0) == Ask(pending=(5, 6), limit=1)  # the reward of 6 waits in the buffer: still pending


def test_spent_drift_budget_triggers_a_refresh() -> None:
    state = asynchronous(batch(0, [5, 6], limit=2), dispatch((0, 1), (1, 1)), success(1))
    state = apply(state, batch(2, [], reason="drift budget", limit=1))
    assert decide(state, now=1.0) == Tell((FinishedTrial(1, Observation(6, 1.0)),))
    assert decide(apply(state, refresh(1)), now=2.0) == Ask(pending=(5,), limit=1)


def test_refresh_waits_while_all_workers_are_busy() -> None:
    state = asynchronous(batch(0, [5, 6], limit=2), dispatch((0, 1)), success(0), batch(2, [7], limit=1))
    assert decide(apply(state, dispatch((1, 1), (2, 1))), now=1.0) == Await()


def test_short_batch_is_not_extended_before_a_refresh() -> None:
    state = asynchronous(batch(0, [5], limit=2), dispatch((0, 1)))
    assert decide(state, now=0.0) == Await()


def test_refresh_is_due_after_results_grow_by_the_share() -> None:
    first: tuple[Event, ...] = (batch(0, list(range(20)), limit=20), dispatch(*((trial, 1) for trial in range(20))))
    learned: tuple[Event, ...] = (*first, *(success(trial) for trial in range(10)), refresh(*range(10)))
    grown: tuple[Event, ...] = (*learned, *(success(trial, time=2.0) for trial in (10, 11)))
    # two results more than ten, eight in flight
    assert isinstance(decide(asynchronous(*grown, slots=20, evaluations=99, refresh_growth=0.1), 2.0), Tell)
    assert isinstance(decide(asynchronous(*grown, slots=20, evaluations=99, refresh_growth=0.15), 2.0), Ask)


def test_refresh_without_a_share_is_due_after_each_result() -> None:
    learned = (batch(0, [5, 6], limit=2), dispatch((0, 1), (1, 1)), success(0), refresh(0), success(1, time=9.0))
    assert isinstance(decide(asynchronous(*learned, refresh_growth=2.0), 9.0), Ask)
    assert isinstance(decide(asynchronous(*learned, refresh_growth=0.0), 9.0), Tell)


def test_backlog_supplies_workers_while_the_strategy_computes() -> None:
    state = asynchronous(batch(0, [5, 6, 7], limit=3), dispatch((0, 1), (1, 1)), success(0))
    state = apply(state, ComputingBegan(time=1.0, what="refreshing"))
    assert decide(state, now=1.0) == Dispatch((Trial(2, 7, {}, 1),))
    assert decide(apply(state, dispatch((2, 1))), now=1.0) == Await()


def test_backlog_lasts_for_the_attempts_that_ended_during_a_computation() -> None:
    events: list[Event] = [batch(0, [5, 6, 7, 8], limit=4), dispatch(*((trial, 1) for trial in range(4))), success(0)]
    events += [ComputingBegan(time=1.0, what="choosing"), success(1), batch(4, [9, 9], limit=2)]
    state = asynchronous(*events, dispatch((4, 1), (5, 1)), slots=4, evaluations=99, refresh_growth=9.0)
    assert decide(state, now=1.0) == Ask(pending=(5, 6, 7, 8, 9, 9), limit=2)  # twice as many, to be asked for in time
    for trial in range(6, 26):  # choices during which no attempt ends
        state = fold_from(state, batch(trial, [9], limit=1), dispatch((trial, 1)))
    assert decide(state, now=1.0) == Await()


def test_picks_do_not_wait_for_results_that_arrived_during_the_refresh() -> None:
    events: list[Event] = [batch(0, [5, 6, 7], limit=3), dispatch((0, 1), (1, 1), (2, 1)), success(0)]
    events += [ComputingBegan(time=1.0, what="refreshing"), success(1), refresh(0)]
    state = asynchronous(*events, slots=3, evaluations=99, refresh_growth=0.0)
    assert isinstance(decide(state, now=1.0), Ask)
    state = fold_from(state, ComputingBegan(time=1.0, what="choosing"), batch(3, [8, 9], limit=2))
    state = fold_from(state, dispatch((3, 1), (4, 1)), success(2))
    assert isinstance(decide(state, now=1.0), Tell)


def test_last_results_are_learned_after_the_last_choice() -> None:
    state = asynchronous(batch(0, [5, 6], limit=2), dispatch((0, 1), (1, 1)), success(1), evaluations=2)
    assert decide(state, now=1.0) == Await()
    assert isinstance(decide(apply(state, success(0)), now=1.0), Tell)


@pytest.mark.parametrize(
    ("executor", "started", "cause"),
    [("ray", 3.1, "sending"), ("ray", 4.0, "worker_start"), ("inline", 4.0, "recording")],
)
def test_time_between_dispatch_and_evaluation_is_assigned_to_its_cause(
    executor: str, started: float, cause: str
) -> None:
    opened = session(evaluations=20, strategy={"mode": "async"}, workers={"executor": executor})
    dispatched = fold(opened, batch(0, [5], time=3.0, limit=1), dispatch((0, 1), time=3.0))
    ended = replace(success(0, time=9.0), started=started, finished=8.0)
    idle = idle_seconds(apply(dispatched, ended))
    assert idle["recording"] == 1.0 + (started - 3.0 if cause == "recording" else 0.0)
    assert cause == "recording" or idle[cause] == pytest.approx(started - 3.0)
    assert not {"sending", "worker_start", "other"} - {cause} & idle.keys()


def test_attempt_that_waits_for_another_one_on_the_only_worker_leaves_it_busy() -> None:
    dispatched: list[Event] = [batch(0, [5, 6], time=0.0, limit=2), dispatch((0, 1), (1, 1), time=0.0)]
    first = replace(success(0, time=4.0), started=0.0, finished=4.0)
    second = replace(success(1, time=8.0), started=4.5, finished=8.0)
    idle = idle_seconds(asynchronous(*dispatched, first, second, slots=1))
    assert idle == {"recording": 0.5}


def test_computation_between_inline_evaluations_is_the_strategys_time() -> None:
    dispatched: list[Event] = [batch(0, [5, 6], time=0.0, limit=2), dispatch((0, 1), (1, 1), time=0.0)]
    first = replace(success(0, time=4.0), started=0.0, finished=4.0)
    began = ComputingBegan(time=4.0, what="choosing")
    computed: list[Event] = [began, batch(2, [7], time=6.0, limit=1)]
    second = replace(success(1, time=9.0), started=6.5, finished=9.0)
    state = asynchronous(*dispatched, first, *computed, second, slots=1)
    assert idle_seconds(state) == {"refit": 2.0, "recording": 0.5}


def test_idle_seconds_are_assigned_to_their_cause() -> None:
    events: list[Event] = [
        batch(0, [5, 6], time=1.0, limit=2),
        dispatch((0, 1), (1, 1), time=1.0),
    ]  # 1 s with two workers idle
    events += [success(0, time=3.0), ComputingBegan(time=3.0, what="choosing")]
    events += [batch(2, [], time=3.5, limit=1)]  # half a second with one worker idle
    state = asynchronous(*events, success(1, time=7.0), evaluations=20)  # 3.5 s more, for the drift budget
    assert state.clock.idle == {"start_up": 2.0, "refit": 0.5, "drift_budget": 3.5}
    last = asynchronous(*events[:2], success(0, time=3.0), success(1, time=7.0), evaluations=2)
    assert last.clock.idle == {"start_up": 2.0, "campaign_end": 4.0}
    learning: list[Event] = [success(0, time=3.0), success(1, time=4.0), ComputingBegan(time=4.0, what="refreshing")]
    last = asynchronous(*events[:2], *learning, refresh(0, 1, time=9.0), evaluations=2)
    assert last.clock.idle == {"start_up": 2.0, "campaign_end": 1.0, "refit": 10.0}
    in_batches = fold(session(slots=2), *events[:2], success(0, time=3.0), success(1, time=7.0))
    assert in_batches.clock.idle == {"start_up": 2.0, "batch_end": 4.0}


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


@settings(max_examples=examples(30))
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


GOALS = CampaignGoals(
    (Objective("accuracy"), Objective("latency", "minimize", reference=9.0)),
    (Constraint("memory", at_most=4.0), Constraint("accuracy", at_least=0.5)),
)


def test_goals_name_their_metrics_once() -> None:
    assert GOALS.for_strategy == Goals(2, 2)
    assert GOALS.further_metrics == ("latency", "memory")
    assert not GOALS.is_single
    assert CampaignGoals().is_single


@pytest.mark.parametrize(("objective", "sign"), [(Objective("loss", "minimize"), -1.0), (Objective("gain"), 1.0)])
def test_reward_is_the_value_with_the_sign_of_the_direction(objective: Objective, sign: float) -> None:
    goals = CampaignGoals((objective,))
    assert goals.reward(3.0) == 3.0 * sign
    assert goals.values(3.0, {}) == (3.0,)
    assert goals.further(3.0, {"other": 1.0}) == ()


def test_result_becomes_rewards_and_margins() -> None:
    metrics = {"latency": 7.0, "memory": 3.0}
    assert GOALS.values(0.75, metrics) == (0.75, 7.0)
    assert GOALS.rewards({"accuracy": 0.75, "latency": 7.0, "other": 1.0}) == {"accuracy": 0.75, "latency": -7.0}
    assert GOALS.rewards({"latency": 7.0}) == {"latency": -7.0}
    assert GOALS.further(0.75, metrics) == (-7.0, 1.0, 0.25)
    assert GOALS.is_feasible(0.75, metrics)
    assert not GOALS.is_feasible(0.25, metrics)
    assert not GOALS.is_feasible(0.75, {**metrics, "memory": 4.5})
    with pytest.raises(KeyError):
        GOALS.values(0.75, {"memory": 3.0})


def test_constraint_has_one_bound_or_two() -> None:
    between = Constraint("size", at_most=5.0, at_least=2.0)
    assert [between.margin(value) for value in (1.0, 2.0, 3.0, 5.0, 6.0)] == [-1.0, 0.0, 1.0, 0.0, -1.0]
    assert str(between) == "size at least 2 and at most 5"
    assert str(Objective("loss", "minimize")) == "loss minimized"
    for wrong in ({}, {"at_most": 1.0, "at_least": 2.0}):
        with pytest.raises(ValueError, match="at_least"):
            Constraint("size", **wrong)


def test_goals_are_written_as_in_a_campaign_file() -> None:
    assert written(Objective("cost", "minimize")) == {"metric": "cost", "direction": "minimize"}
    assert written(Constraint("risk", at_most=0.5)) == {"metric": "risk", "at_most": 0.5}
    assert written({"metric": "risk"}) == {"metric": "risk"}
