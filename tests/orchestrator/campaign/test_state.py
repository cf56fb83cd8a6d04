"""The campaign as a pure state machine: commands compared with `==`, invariants checked after every event."""

import functools
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.bandit.strategy import Observation
from orchestrator.campaign.commands import (
    Ask,
    Await,
    Begin,
    Close,
    Dispatch,
    FinishedTrial,
    GiveUp,
    Pause,
    QueuedAttempt,
    Stop,
    Tell,
)
from orchestrator.campaign.endings import Phase, SessionOutcome, StopReason
from orchestrator.campaign.events import (
    BatchChosen,
    ComputingBegan,
    Event,
    ExistingTaken,
    ModelRefreshed,
    PickedTrial,
    PlacesChanged,
    SessionClosed,
    SessionOpened,
    StopRequested,
    TrialFailed,
    TrialsDispatched,
    TrialSucceeded,
)
from orchestrator.campaign.policy import MOST_PICKS, decide
from orchestrator.campaign.rules import (
    CANCELLATIONS_OF_A_TRIAL,
    LONGEST_PAUSE_SECONDS,
    NODES_A_TRIAL_MAY_COST,
    WORKERS_AN_ARM_MAY_COST,
    AttemptFailures,
    Rules,
)
from orchestrator.campaign.state import CampaignState, is_expected, is_final
from orchestrator.campaign.transitions import apply
from workers.messages import Failure, FailureKind, Success


def settings_of(evaluations: int = 10, **changes: Any) -> dict[str, Any]:
    return {
        "objective": {"direction": changes.pop("direction", "maximize")},
        "budget": {
            "evaluations": evaluations,
            "hours": changes.pop("hours", None),
            "target": changes.pop("target", None),
        },
        "workers": {"retries": changes.pop("retries", 2), **changes.pop("workers", {})},
        "strategy": changes.pop("strategy", {}),
    }


def session(slots: int = 2, time: float = 0.0, epoch: int = 1, **changes: Any) -> SessionOpened:
    return SessionOpened(time=time, epoch=epoch, executor="inline", slots=slots, settings=settings_of(**changes))


def batch(first: int, arms: list[int], time: float = 0.0, reason: str = "drift budget", **more: Any) -> BatchChosen:
    picks = tuple(
        PickedTrial(trial=first + i, arm=arm, parameters={}, mean=0.0, width=1.0, variance=1.0)
        for i, arm in enumerate(arms)
    )
    return BatchChosen(time=time, round=0, picks=picks, reason=reason, seconds=0.0, **more)


def dispatch(*attempts: tuple[int, int], time: float = 0.0) -> TrialsDispatched:
    return TrialsDispatched(time=time, attempts=attempts)


def success(trial: int, value: float = 1.0, attempt: int = 1, time: float = 1.0) -> TrialSucceeded:
    return TrialSucceeded(time=time, trial=trial, attempt=attempt, value=value, started=0.0, finished=time, worker="w")


def failure(trial: int, kind: FailureKind, is_final_: bool, attempt: int = 1, time: float = 1.0) -> TrialFailed:
    return TrialFailed(
        time=time, trial=trial, attempt=attempt, failure=kind.value, message="why", is_final=is_final_,
        started=0.0, finished=time, worker="w",
    )  # fmt: skip


def fold(*events: Event) -> CampaignState:
    return fold_from(CampaignState(), *events)


def fold_from(state: CampaignState, *events: Event) -> CampaignState:
    for event in events:
        state = apply(state, event)
    return state


def test_an_open_session_asks_for_no_more_than_the_budget() -> None:
    assert decide(fold(session(evaluations=7)), now=0.0) == Ask(pending=(), limit=7)


def test_a_batch_beyond_the_limit_of_one_choice_goes_on_with_its_first_part_pending_and_is_learned_whole() -> None:
    state = fold(session(slots=2, evaluations=MOST_PICKS + 3))
    assert decide(state, now=0.0) == Ask(pending=(), limit=MOST_PICKS)
    state = apply(state, batch(0, [5] * MOST_PICKS, limit=MOST_PICKS))
    assert isinstance(decide(state, now=0.0), Dispatch)
    state = apply(state, dispatch(*((trial, 1) for trial in range(MOST_PICKS))))
    assert decide(state, now=0.0) == Ask(pending=(5,) * MOST_PICKS, limit=3)  # no worker waits for the end of the part
    ended = fold_from(state, *(success(trial) for trial in range(MOST_PICKS)))
    assert decide(ended, now=1.0) == Ask(pending=(5,) * MOST_PICKS, limit=3)  # not told: the batch has more to come
    assert isinstance(decide(apply(ended, batch(MOST_PICKS, [], limit=3)), now=1.0), Tell)  # the strategy ended it


def test_trials_that_the_user_chose_are_learned_before_the_first_batch() -> None:
    state = fold(session(slots=1), batch(0, [5], limit=1, is_enqueued=True), dispatch((0, 1)))
    assert isinstance(decide(state, now=0.0), Await)
    assert isinstance(decide(apply(state, success(0)), now=1.0), Tell)


def test_a_chosen_batch_is_dispatched_in_order_to_free_slots_only() -> None:
    state = fold(session(slots=2), batch(0, [5, 6, 7]))
    assert decide(state, now=0.0) == Dispatch((QueuedAttempt(0, 5, 1), QueuedAttempt(1, 6, 1)))


def test_the_next_of_the_batch_takes_the_slot_that_becomes_free() -> None:
    state = fold(session(slots=2), batch(0, [5, 6, 7]), dispatch((0, 1), (1, 1)))
    assert decide(state, now=0.0) == Await()
    assert decide(apply(state, success(1)), now=1.0) == Dispatch((QueuedAttempt(2, 7, 1),))


def test_the_strategy_is_told_when_the_whole_batch_is_over() -> None:
    state = fold(session(slots=2), batch(0, [5, 6]), dispatch((0, 1), (1, 1)), success(1, 0.25))
    assert decide(state, now=1.0) == Await()
    state = apply(state, success(0, 0.5))
    assert decide(state, now=1.0) == Tell(
        (FinishedTrial(1, Observation(6, 0.25)), FinishedTrial(0, Observation(5, 0.5)))
    )


def test_minimised_values_reach_the_strategy_as_rewards_with_the_sign_turned() -> None:
    state = fold(
        session(direction="minimize"), batch(0, [5, 6]), dispatch((0, 1), (1, 1)), success(0, 3.0), success(1, 2.0)
    )
    assert [finished.observation.reward for finished in state.finished] == [-3.0, -2.0]
    assert state.best is not None
    assert state.best.value == 2.0


def test_a_trial_that_failed_for_good_is_told_as_not_evaluated() -> None:
    state = fold(session(slots=1), batch(0, [5]), dispatch((0, 1)), failure(0, FailureKind.INVALID_VALUE, True))
    assert decide(state, now=1.0) == Tell((FinishedTrial(0, Observation(5, None)),))


def test_a_retry_goes_first_and_has_the_next_attempt_number() -> None:
    state = fold(session(slots=1), batch(0, [5, 6]), dispatch((0, 1)), failure(0, FailureKind.ERROR, False))
    assert decide(state, now=1.0) == Dispatch((QueuedAttempt(0, 5, 2),))


@pytest.mark.parametrize(
    ("kind", "attempts_in_all"),
    [
        (FailureKind.ERROR, 3),
        (FailureKind.INVALID_VALUE, 1),
        (FailureKind.TIMEOUT, 2),
        (FailureKind.OUT_OF_MEMORY, 2),
        (FailureKind.WORKER_LOST, WORKERS_AN_ARM_MAY_COST),
        (FailureKind.NODE_LOST, NODES_A_TRIAL_MAY_COST),
        (FailureKind.CANCELLED, CANCELLATIONS_OF_A_TRIAL),
    ],
)
def test_every_kind_of_failure_has_its_own_number_of_attempts(kind: FailureKind, attempts_in_all: int) -> None:
    state = fold(session(slots=1, retries=2), batch(0, [5]))
    for attempt in range(1, 20):
        state = apply(state, dispatch((0, attempt)))
        over = is_final(
            state, Failure(trial=0, attempt=attempt, kind=kind, message="why", started=0.0, finished=1.0, worker="w")
        )
        state = apply(state, failure(0, kind, over, attempt))
        if over:
            break
    assert attempt == attempts_in_all


def test_a_lost_worker_does_not_use_up_the_retries() -> None:
    rules, lost = Rules(evaluations=1, retries=1), AttemptFailures().after(FailureKind.WORKER_LOST)
    assert rules.allows_retry(FailureKind.ERROR, lost.after(FailureKind.ERROR), workers_lost=2)
    assert not rules.allows_retry(FailureKind.ERROR, AttemptFailures(charged=2), workers_lost=0)


def test_a_cancelled_attempt_does_not_use_up_the_retries() -> None:
    assert Rules(evaluations=1, retries=0).allows_retry(FailureKind.CANCELLED, AttemptFailures(), workers_lost=0)


@pytest.mark.parametrize("kind", FailureKind)
def test_no_kind_of_failure_is_tried_again_without_bound_or_pause(kind: FailureKind) -> None:
    state, now, attempts = fold(session(slots=1, retries=8), batch(0, [5])), 0.0, 0
    while state.succeeded + state.failed == 0:
        command = decide(state, now)
        if isinstance(command, Pause):
            assert 0.0 < command.seconds <= LONGEST_PAUSE_SECONDS
            now += command.seconds
            continue
        assert isinstance(command, Dispatch)
        attempts += 1
        assert attempts <= 20
        (assignment,) = command.assignments
        state = apply(state, dispatch((0, assignment.attempt), time=now))
        over = is_final(
            state,
            Failure(
                trial=0, attempt=assignment.attempt, kind=kind, message="why", started=now, finished=now, worker="w"
            ),
        )
        state = apply(state, failure(0, kind, over, assignment.attempt, time=now))
    assert now >= sum(min(60.0, 2.0**n) for n in range(attempts - 2))


def test_a_free_worker_does_not_wait_for_a_trial_that_pauses() -> None:
    state = fold(session(slots=1, strategy={"mode": "async"}), batch(0, [5], limit=1))
    for attempt in (1, 2):
        state = apply(state, dispatch((0, attempt)))
        state = apply(state, failure(0, FailureKind.ERROR, False, attempt))
    assert decide(state, now=1.0) == Ask(pending=(5,), limit=1)
    assert decide(state, now=2.0) == Dispatch((QueuedAttempt(0, 5, 3, not_before=2.0),))


def test_a_late_or_doubled_result_is_not_expected() -> None:
    state = fold(session(slots=1), batch(0, [5]), dispatch((0, 2)))
    late, current = (Success(0, attempt, 1.0, 0.0, 1.0, "w") for attempt in (1, 2))
    assert not is_expected(state, late)
    assert is_expected(state, current)
    assert not is_expected(apply(state, success(0, attempt=2)), current)


def test_after_a_crash_what_was_running_runs_again_first_as_a_new_attempt() -> None:
    state = fold(session(slots=2), batch(0, [5, 6, 7]), dispatch((0, 1), (1, 1)), success(1), session(slots=3, epoch=2))
    assert decide(state, now=2.0) == Dispatch((QueuedAttempt(0, 5, 2), QueuedAttempt(2, 7, 1)))


def test_the_target_stops_the_campaign_and_running_evaluations_end() -> None:
    state = fold(session(slots=2, target=0.9), batch(0, [5, 6, 7]), dispatch((0, 1), (1, 1)), success(0, 0.95))
    assert decide(state, now=1.0) == Stop(StopReason.TARGET_REACHED)
    state = apply(state, StopRequested(time=1.0, reason=StopReason.TARGET_REACHED))
    assert decide(state, now=1.0) == Await()
    assert decide(apply(state, success(1)), now=1.0) == Close(SessionOutcome.FINISHED, "target reached")


def test_the_time_budget_counts_sessions_and_not_the_pause_between_them() -> None:
    first = fold(
        session(hours=1.0), batch(0, [5]), dispatch((0, 1)), success(0, time=1800.0),
        SessionClosed(time=1800.0, outcome=SessionOutcome.INTERRUPTED, reason=""),
    )  # fmt: skip
    again = apply(first, session(time=1e6, epoch=2, hours=1.0))
    assert decide(again, now=1e6 + 1700.0) != Stop(StopReason.TIME_SPENT)
    assert decide(again, now=1e6 + 1801.0) == Stop(StopReason.TIME_SPENT)


def test_an_interrupted_batch_stays_untold_so_that_a_resume_goes_on_with_it() -> None:
    state = fold(
        session(slots=1),
        batch(0, [5, 6]),
        dispatch((0, 1)),
        StopRequested(time=0.5, reason=StopReason.INTERRUPTED),
        success(0),
    )
    assert decide(state, now=1.0) == Close(
        SessionOutcome.INTERRUPTED, "stopped on request, after its running evaluations"
    )
    state = fold(*_events_of_interrupted(), session(slots=1, epoch=2, time=5.0))
    assert decide(state, now=5.0) == Dispatch((QueuedAttempt(1, 6, 1),))


def _events_of_interrupted() -> list[Event]:
    return [
        session(slots=1), batch(0, [5, 6]), dispatch((0, 1)), StopRequested(time=0.5, reason=StopReason.INTERRUPTED),
        success(0), SessionClosed(time=1.0, outcome=SessionOutcome.INTERRUPTED, reason="interrupted"),
    ]  # fmt: skip


def test_a_campaign_in_which_everything_fails_stops_with_the_first_cause() -> None:
    state = fold(session(slots=1, evaluations=100), batch(0, list(range(100))))
    for trial in range(100):
        if decide(state, now=0.0) == Stop(StopReason.EVERYTHING_FAILS):
            break
        state = apply(state, dispatch((trial, 1)))
        state = apply(state, failure(trial, FailureKind.INVALID_VALUE, True))
    assert trial == state.rules.failures_before_giving_up < 100
    state = apply(state, StopRequested(time=1.0, reason=StopReason.EVERYTHING_FAILS))
    close = decide(state, now=1.0)
    assert isinstance(close, Close)
    assert close.outcome == "failed"
    assert "invalid value: why" in close.reason


def test_a_strategy_with_nothing_to_pull_ends_the_campaign() -> None:
    state = fold(
        session(slots=1), batch(0, [5]), dispatch((0, 1)), success(0),
        ModelRefreshed(time=1.0, round=1, trials=(0,), dictionary_size=1, record={}, seconds=0.0),
        batch(1, [], reason="no arm is left"),
    )  # fmt: skip
    assert decide(state, now=1.0) == Close(SessionOutcome.FINISHED, "no arm is left")


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32), slots=st.integers(1, 4), evaluations=st.integers(1, 25),
    mode=st.sampled_from(["batch", "async"]), overhead=st.sampled_from([0.0, 0.1]),
    growth=st.sampled_from([0.0, 0.2]),
)  # fmt: skip
def test_any_course_of_a_campaign_keeps_its_budget_and_ends_every_trial_once(
    seed: int, slots: int, evaluations: int, mode: str, overhead: float, growth: float
) -> None:
    """Random batches, orders of return, failures, crashes and adoptions; a fold of the log equals the live state."""
    chance = random.Random(seed)
    state, log, now, over = CampaignState(), [], 0.0, []
    strategy = {"mode": mode, "refresh_overhead": overhead, "refresh_growth": growth}
    options: dict[str, Any] = {"evaluations": evaluations, "strategy": strategy}
    computed: Event | None = None

    def record(event: Event) -> None:
        nonlocal state
        log.append(event)
        state = apply(state, event)
        assert len(state.running) <= state.slots
        assert state.trials <= evaluations
        open_trials = len(state.running) + len(state.backlog)
        assert state.trials == open_trials + state.succeeded + state.failed
        assert len(state.pending) == open_trials + len(state.finished)

    def compute(what: Any, result: Event) -> None:
        nonlocal computed
        record(ComputingBegan(time=now, what=what))
        computed = result

    record(session(slots=slots, **options))
    for _ in range(2000):
        now += 1.0
        if chance.random() < 0.05:
            held = tuple(trial for trial in state.running if chance.random() < 0.5)
            crashed = session(slots=slots, time=now, epoch=state.epoch + 1, **options)
            record(replace(crashed, adopted=held))
            computed = None
        if computed is not None and chance.random() < 0.5:
            record(replace(computed, time=now))
            computed = None
        command = decide(state, now)
        match command:
            case Ask():
                # a strategy always allows one pull when none is pending
                size = chance.randint(0 if command.pending else 1, min(command.limit, 6))
                chosen = batch(state.trials, [0] * size, limit=command.limit)
                compute("choosing", chosen)
            case Dispatch():
                record(dispatch(*((a.trial, a.attempt) for a in command.assignments), time=now))
            case Tell():
                trials = tuple(finished.trial for finished in command.finished)
                refresh = ModelRefreshed(
                    time=now, round=state.round + 1, trials=trials, dictionary_size=1, record={}, seconds=0
                )
                compute("refreshing", refresh)
            case Await():
                if not state.running:
                    continue
                trial = chance.choice(sorted(state.running))
                attempt = state.running[trial].attempt
                kind = chance.choice([None, None, None, *FailureKind])
                if kind is None:
                    record(success(trial, attempt=attempt, time=now))
                else:
                    final = is_final(
                        state,
                        Failure(
                            trial=trial,
                            attempt=attempt,
                            kind=kind,
                            message="why",
                            started=0.0,
                            finished=now,
                            worker="w",
                        ),
                    )
                    record(failure(trial, kind, final, attempt, now))
                if trial not in state.running and all(a.trial != trial for a in state.backlog):
                    over.append(trial)
            case Stop():
                record(StopRequested(time=now, reason=command.reason))
            case Close():
                break
    assert isinstance(command, Close)
    assert len(over) == len(set(over))
    if state.stop_reason is None:
        assert sorted(over) == list(range(evaluations))
    assert fold(*log) == state


def test_the_states_size_does_not_grow_with_finished_trials() -> None:
    state = fold(session(slots=1, evaluations=10_000))
    for trial in range(50):
        for event in (batch(trial, [3]), dispatch((trial, 1)), success(trial)):
            state = apply(state, event)
        refresh = ModelRefreshed(time=1.0, round=trial + 1, trials=(trial,), dictionary_size=1, record={}, seconds=0.0)
        state = apply(state, refresh)
    assert (len(state.backlog), len(state.running), len(state.attempt_failures), len(state.finished)) == (0, 0, 0, 0)
    assert replace(state, trials=0).succeeded == 50


def existing_data(*values: float) -> ExistingTaken:
    return ExistingTaken(
        time=0.0, source="t.csv", arms=tuple(range(len(values))), values=values, unmatched=3, first_unmatched="row 1"
    )


@pytest.mark.parametrize(("direction", "sign"), [("maximize", 1.0), ("minimize", -1.0)])
def test_existing_data_are_told_first_and_cost_nothing(direction: str, sign: float) -> None:
    state = fold(existing_data(2.0, -1.0), session(direction=direction))
    assert decide(state, 0.0) == Begin(
        (Observation(0, sign * 2.0, is_existing=True), Observation(1, sign * -1.0, is_existing=True))
    )
    begun = apply(state, ModelRefreshed(time=0.0, round=1, trials=(), dictionary_size=2, record={}, seconds=0.0))
    assert decide(begun, 0.0) == Ask(pending=(), limit=10)
    assert (begun.trials, begun.succeeded, begun.best, begun.existing) == (0, 0, None, None)
    assert (begun.existing_count, begun.existing_unmatched) == (2, 3)


def test_a_session_that_is_stopped_before_existing_data_are_told_leaves_them_to_the_next() -> None:
    stopped = fold(existing_data(1.0), session(), StopRequested(time=0.0, reason=StopReason.INTERRUPTED))
    assert decide(stopped, 0.0) == Close(
        SessionOutcome.INTERRUPTED, "stopped on request, after its running evaluations"
    )
    again = apply(
        apply(stopped, SessionClosed(time=0.0, outcome=SessionOutcome.INTERRUPTED, reason="")), session(epoch=2)
    )
    assert decide(again, 0.0) == Begin((Observation(0, 1.0, is_existing=True),))


def asynchronous(*events: Event, slots: int = 2, evaluations: int = 20, **strategy: Any) -> CampaignState:
    options = {"mode": "async", **strategy}
    return fold(session(slots=slots, evaluations=evaluations, strategy=options), *events)


def refresh(*trials: int, time: float = 2.0) -> ModelRefreshed:
    return ModelRefreshed(time=time, round=1, trials=trials, dictionary_size=1, record={}, seconds=0.0)


def test_in_asynchronous_mode_a_free_worker_is_given_a_pick_while_others_still_run() -> None:
    state = asynchronous(batch(0, [5, 6], limit=2), dispatch((0, 1), (1, 1)), success(1))
    assert decide(state, now=1.0) == Ask(pending=(5, 6), limit=1)  # the reward of 6 waits in the buffer: still pending


def test_a_spent_drift_budget_makes_what_is_finished_known() -> None:
    state = asynchronous(batch(0, [5, 6], limit=2), dispatch((0, 1), (1, 1)), success(1))
    state = apply(state, batch(2, [], reason="drift budget", limit=1))
    assert decide(state, now=1.0) == Tell((FinishedTrial(1, Observation(6, 1.0)),))
    assert decide(apply(state, refresh(1)), now=2.0) == Ask(pending=(5,), limit=1)


def test_nothing_is_refreshed_for_workers_that_are_all_busy() -> None:
    state = asynchronous(batch(0, [5, 6], limit=2), dispatch((0, 1)), success(0), batch(2, [7], limit=1))
    assert decide(apply(state, dispatch((1, 1), (2, 1))), now=1.0) == Await()


@settings(max_examples=30, deadline=None)
@given(chosen=st.integers(1, 6), evaluations=st.integers(0, 6))
def test_no_more_is_dispatched_than_a_lowered_budget_allows(chosen: int, evaluations: int) -> None:
    backlog = tuple(QueuedAttempt(trial, arm=trial, attempt=1) for trial in range(chosen))
    state = CampaignState(
        rules=Rules(evaluations=evaluations), phase=Phase.RUNNING, slots=6, trials=chosen, backlog=backlog
    )
    command = decide(state, now=0.0)
    sent = len(command.assignments) if isinstance(command, Dispatch) else 0
    assert sent == min(chosen, evaluations)


def test_a_short_batch_is_not_asked_for_the_rest_again_before_it_is_told_something() -> None:
    state = asynchronous(batch(0, [5], limit=2), dispatch((0, 1)))
    assert decide(state, now=0.0) == Await()


def test_a_refresh_comes_early_where_it_is_cheap_next_to_an_evaluation() -> None:
    busy = (batch(0, [5, 6], limit=2), dispatch((0, 1), (1, 1)), success(0, time=10.0))
    began, done = ComputingBegan(time=10.0, what="refreshing"), refresh(0, time=10.4)
    again = (batch(2, [7], time=10.4, limit=1), dispatch((2, 1), time=10.4), success(2, time=20.0))
    # 0.4 s for a refresh, 9.6 s since: 4.2 % of the time
    assert isinstance(decide(asynchronous(*busy, began, done, *again, refresh_overhead=0.05), 20.0), Tell)
    assert isinstance(decide(asynchronous(*busy, began, done, *again, refresh_overhead=0.04), 20.0), Ask)
    assert isinstance(decide(asynchronous(*busy, began, done, *again), 20.0), Ask)


def test_a_refresh_is_due_when_results_have_grown_by_the_share_asked_for() -> None:
    first: tuple[Event, ...] = (batch(0, list(range(20)), limit=20), dispatch(*((trial, 1) for trial in range(20))))
    learned: tuple[Event, ...] = (*first, *(success(trial) for trial in range(10)), refresh(*range(10)))
    grown: tuple[Event, ...] = (*learned, *(success(trial, time=2.0) for trial in (10, 11)))
    # two results more than ten, eight in flight
    assert isinstance(decide(asynchronous(*grown, slots=20, evaluations=99, refresh_growth=0.1), 2.0), Tell)
    assert isinstance(decide(asynchronous(*grown, slots=20, evaluations=99, refresh_growth=0.15), 2.0), Ask)


def test_in_virtual_time_a_refresh_is_due_by_growth_alone() -> None:
    learned = (batch(0, [5, 6], limit=2), dispatch((0, 1), (1, 1)), success(0), refresh(0), success(1, time=9.0))
    assert isinstance(decide(asynchronous(*learned, refresh_overhead=0.05, refresh_growth=2.0), 9.0), Ask)
    assert isinstance(decide(asynchronous(*learned, refresh_overhead=0.05), 9.0), Tell)


def test_while_the_strategy_computes_workers_are_fed_from_the_stock() -> None:
    state = asynchronous(batch(0, [5, 6, 7], limit=3), dispatch((0, 1), (1, 1)), success(0))
    state = apply(state, ComputingBegan(time=1.0, what="refreshing"))
    assert decide(state, now=1.0) == Dispatch((QueuedAttempt(2, 7, 1),))
    assert decide(apply(state, dispatch((2, 1))), now=1.0) == Await()


def test_the_stock_covers_the_results_that_come_in_while_the_strategy_computes() -> None:
    chosen: list[Event] = [batch(0, [5, 6], limit=2), dispatch((0, 1), (1, 1))]
    results: list[Event] = [
        success(0, time=1.0),
        ComputingBegan(time=1.0, what="choosing"),
        batch(2, [7], time=1.5, limit=1),
    ]
    rest: list[Event] = [dispatch((2, 1), time=1.5), success(1, time=2.0), batch(3, [8], time=2.0, limit=1)]
    state = asynchronous(*chosen, *results, *rest, dispatch((3, 1), time=2.0))
    assert state.choosing_seconds == 0.0  # no computation was announced before the last batch
    state = asynchronous(*chosen, *results, dispatch((2, 1), time=1.5), success(1, time=2.0))
    assert (state.choosing_seconds, state.outcome_interval_seconds) == (0.5, 1.0)
    assert decide(state, now=2.0) == Ask(pending=(5, 6, 7), limit=2)  # one for the free worker, one more


def test_picks_for_idle_workers_in_a_log_of_0_1_do_not_say_whether_the_strategy_has_more() -> None:
    waiting = asynchronous(batch(0, [5], limit=2, reason="warm start"), dispatch((0, 1)))
    after = apply(waiting, batch(1, [9], limit=1, is_filler=True))
    assert after.stalled == waiting.stalled == "warm start"
    assert decide(after, now=0.0) == Dispatch((QueuedAttempt(1, 9, 1),))


def test_the_last_results_are_told_when_nothing_is_left_to_choose() -> None:
    state = asynchronous(batch(0, [5, 6], limit=2), dispatch((0, 1), (1, 1)), success(1), evaluations=2)
    assert decide(state, now=1.0) == Await()
    assert isinstance(decide(apply(state, success(0)), now=1.0), Tell)


def test_an_adopted_trial_goes_on_under_its_attempt() -> None:
    state = asynchronous(batch(0, [5, 6], limit=2), dispatch((0, 1), (1, 1)))
    again = apply(state, replace(session(slots=2, epoch=2, strategy={"mode": "async"}), adopted=(1,)))
    assert decide(again, now=0.0) == Dispatch((QueuedAttempt(0, 5, 2),))
    assert is_expected(again, Success(1, 1, 1.0, 0.0, 1.0, "w"))


def test_an_arm_that_costs_worker_after_worker_is_set_aside_over_all_its_trials() -> None:
    state = fold(session(slots=3), batch(0, [5, 5, 5]), dispatch((0, 1), (1, 1), (2, 1)))
    for trial in (0, 1):
        lost = Failure(
            trial=trial, attempt=1, kind=FailureKind.WORKER_LOST, message="why", started=0.0, finished=1.0, worker="w"
        )
        assert not is_final(state, lost)
        state = apply(state, failure(trial, FailureKind.WORKER_LOST, False))
    assert is_final(
        state,
        Failure(trial=2, attempt=1, kind=FailureKind.WORKER_LOST, message="why", started=0.0, finished=1.0, worker="w"),
    )
    assert apply(state, failure(2, FailureKind.WORKER_LOST, True)).quarantined == (5,)
    state = apply(apply(state, success(2)), dispatch((1, 2)))  # it can be evaluated after all
    assert not is_final(
        state,
        Failure(trial=1, attempt=2, kind=FailureKind.WORKER_LOST, message="why", started=0.0, finished=1.0, worker="w"),
    )


def test_out_of_memory_is_tried_again_with_more_where_the_campaign_says_so() -> None:
    state = fold(session(slots=1, workers={"retry_memory_factor": 1.5}), batch(0, [5]))
    for attempt, factor in ((1, 1.0), (2, 1.5), (3, 2.25)):
        state = apply(state, dispatch((0, attempt)))
        assert state.memory_factor(0) == factor
        over = is_final(
            state,
            Failure(
                trial=0,
                attempt=attempt,
                kind=FailureKind.OUT_OF_MEMORY,
                message="why",
                started=0.0,
                finished=1.0,
                worker="w",
            ),
        )
        state = apply(state, failure(0, FailureKind.OUT_OF_MEMORY, over, attempt))
    assert over


def test_a_deadline_is_learned_from_durations_where_the_campaign_says_so() -> None:
    events: list[Event] = [batch(0, list(range(7))), dispatch(*((trial, 1) for trial in range(7)))]
    events += [success(trial, time=20.0) for trial in range(5)]
    patient = fold(session(slots=7), *events)
    strict = fold(session(slots=7, workers={"timeout_factor": 3.0}), *events)
    assert decide(strict, now=59.0) == Await()
    late = decide(strict, now=61.0)
    assert isinstance(late, GiveUp)
    assert late.trials == (5, 6)
    assert decide(patient, now=1e9) == Await()


def test_idle_seconds_are_booked_to_their_cause() -> None:
    events: list[Event] = [
        batch(0, [5, 6], time=1.0, limit=2),
        dispatch((0, 1), (1, 1), time=1.0),
    ]  # 1 s with two workers idle
    events += [success(0, time=3.0), ComputingBegan(time=3.0, what="choosing")]
    events += [batch(2, [], time=3.5, limit=1)]  # half a second with one worker idle
    state = asynchronous(*events, success(1, time=7.0), evaluations=20)  # 3.5 s more, for the drift budget
    assert state.idle.by_cause() == {"start_up": 2.0, "refit": 0.5, "drift_budget": 3.5}
    last = asynchronous(*events[:2], success(0, time=3.0), success(1, time=7.0), evaluations=2)
    assert last.idle.by_cause() == {"start_up": 2.0, "campaign_end": 4.0}
    in_batches = fold(session(slots=2), *events[:2], success(0, time=3.0), success(1, time=7.0))
    assert in_batches.idle.by_cause() == {"start_up": 2.0, "batch_end": 4.0}


def test_the_number_of_workers_follows_the_places_of_the_cluster() -> None:
    session = SessionOpened(time=0.0, epoch=1, executor="ray", slots=2, settings=settings_of(evaluations=10))
    grown: list[Event] = [session, PlacesChanged(time=10.0, slots=6), PlacesChanged(time=20.0, slots=3)]
    stop = StopRequested(time=30.0, reason=StopReason.INTERRUPTED)
    state = functools.reduce(apply, [*grown, stop], CampaignState())
    assert state.slots == 3
    assert state.capacity_seconds == 10 * 2 + 10 * 6 + 10 * 3
