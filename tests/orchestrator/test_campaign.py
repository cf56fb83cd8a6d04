"""The campaign as a pure state machine: commands compared with `==`, invariants checked after every event."""

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.bandit.strategy import Observation
from orchestrator.campaign import (
    WORKERS_ONE_TRIAL_MAY_COST,
    CampaignState,
    Losses,
    Rules,
    apply,
    decide,
    is_expected,
    is_final,
)
from orchestrator.commands import Ask, Assignment, Await, Begin, Close, Dispatch, Finished, Stop, Tell
from orchestrator.events import (
    BatchChosen,
    Event,
    ExistingTaken,
    ModelRefreshed,
    PickedTrial,
    SessionClosed,
    SessionOpened,
    StopRequested,
    TrialFailed,
    TrialsDispatched,
    TrialSucceeded,
)
from workers.messages import Failure, FailureKind, Success


def settings_of(evaluations: int = 10, **changes: Any) -> dict[str, Any]:
    return {
        "objective": {"direction": changes.pop("direction", "maximize")},
        "budget": {
            "evaluations": evaluations,
            "hours": changes.pop("hours", None),
            "target": changes.pop("target", None),
        },
        "workers": {"retries": changes.pop("retries", 2)},
    }


def opened(slots: int = 2, time: float = 0.0, epoch: int = 1, **changes: Any) -> SessionOpened:
    return SessionOpened(time=time, epoch=epoch, executor="inline", slots=slots, settings=settings_of(**changes))


def batch(first: int, arms: list[int], time: float = 0.0, reason: str = "drift budget") -> BatchChosen:
    picks = tuple(
        PickedTrial(trial=first + i, arm=arm, parameters={}, mean=0.0, width=1.0, variance=1.0)
        for i, arm in enumerate(arms)
    )
    return BatchChosen(time=time, round=0, picks=picks, reason=reason, seconds=0.0)


def dispatched(*attempts: tuple[int, int], time: float = 0.0) -> TrialsDispatched:
    return TrialsDispatched(time=time, attempts=attempts)


def success(trial: int, value: float = 1.0, attempt: int = 1, time: float = 1.0) -> TrialSucceeded:
    return TrialSucceeded(time=time, trial=trial, attempt=attempt, value=value, started=0.0, finished=time, worker="w")


def failure(trial: int, kind: FailureKind, is_final_: bool, attempt: int = 1, time: float = 1.0) -> TrialFailed:
    return TrialFailed(
        time=time, trial=trial, attempt=attempt, failure=kind.value, message="why", is_final=is_final_,
        started=0.0, finished=time, worker="w",
    )  # fmt: skip


def fold(*events: Event) -> CampaignState:
    state = CampaignState()
    for event in events:
        state = apply(state, event)
    return state


def test_an_open_session_asks_for_no_more_than_the_budget() -> None:
    assert decide(fold(opened(evaluations=7)), now=0.0) == Ask(pending=(), limit=7)


def test_a_chosen_batch_is_dispatched_in_order_to_free_slots_only() -> None:
    state = fold(opened(slots=2), batch(0, [5, 6, 7]))
    assert decide(state, now=0.0) == Dispatch((Assignment(0, 5, 1), Assignment(1, 6, 1)))


def test_the_next_of_the_batch_takes_the_slot_that_becomes_free() -> None:
    state = fold(opened(slots=2), batch(0, [5, 6, 7]), dispatched((0, 1), (1, 1)))
    assert decide(state, now=0.0) == Await()
    assert decide(apply(state, success(1)), now=1.0) == Dispatch((Assignment(2, 7, 1),))


def test_the_strategy_is_told_when_the_whole_batch_is_over() -> None:
    state = fold(opened(slots=2), batch(0, [5, 6]), dispatched((0, 1), (1, 1)), success(1, 0.25))
    assert decide(state, now=1.0) == Await()
    state = apply(state, success(0, 0.5))
    assert decide(state, now=1.0) == Tell((Finished(1, Observation(6, 0.25)), Finished(0, Observation(5, 0.5))))


def test_minimised_values_reach_the_strategy_as_rewards_with_the_sign_turned() -> None:
    state = fold(
        opened(direction="minimize"), batch(0, [5, 6]), dispatched((0, 1), (1, 1)), success(0, 3.0), success(1, 2.0)
    )
    assert [finished.observation.reward for finished in state.finished] == [-3.0, -2.0]
    assert state.best is not None
    assert state.best.value == 2.0


def test_a_trial_that_failed_for_good_is_told_as_not_evaluated() -> None:
    state = fold(opened(slots=1), batch(0, [5]), dispatched((0, 1)), failure(0, FailureKind.INVALID_VALUE, True))
    assert decide(state, now=1.0) == Tell((Finished(0, Observation(5, None)),))


def test_a_retry_goes_first_and_has_the_next_attempt_number() -> None:
    state = fold(opened(slots=1), batch(0, [5, 6]), dispatched((0, 1)), failure(0, FailureKind.ERROR, False))
    assert decide(state, now=1.0) == Dispatch((Assignment(0, 5, 2),))


@pytest.mark.parametrize(
    ("kind", "attempts_in_all"),
    [
        (FailureKind.ERROR, 3),
        (FailureKind.INVALID_VALUE, 1),
        (FailureKind.TIMEOUT, 2),
        (FailureKind.OUT_OF_MEMORY, 2),
        (FailureKind.WORKER_LOST, WORKERS_ONE_TRIAL_MAY_COST),
    ],
)
def test_every_kind_of_failure_has_its_own_number_of_attempts(kind: FailureKind, attempts_in_all: int) -> None:
    state = fold(opened(slots=1, retries=2), batch(0, [5]))
    for attempt in range(1, 20):
        state = apply(state, dispatched((0, attempt)))
        over = is_final(state, Failure(0, attempt, kind, "why", 0.0, 1.0, "w"))
        state = apply(state, failure(0, kind, over, attempt))
        if over:
            break
    assert attempt == attempts_in_all


def test_a_lost_worker_does_not_use_up_the_retries() -> None:
    rules = Rules(evaluations=1, retries=1)
    assert rules.allows_retry(FailureKind.ERROR, Losses(charged=1, workers=2))
    assert not rules.allows_retry(FailureKind.ERROR, Losses(charged=2, workers=0))


def test_a_cancelled_attempt_is_given_back_for_ever() -> None:
    assert Rules(evaluations=1, retries=0).allows_retry(FailureKind.CANCELLED, Losses())


def test_a_late_or_doubled_result_is_not_expected() -> None:
    state = fold(opened(slots=1), batch(0, [5]), dispatched((0, 2)))
    late, current = (Success(0, attempt, 1.0, 0.0, 1.0, "w") for attempt in (1, 2))
    assert not is_expected(state, late)
    assert is_expected(state, current)
    assert not is_expected(apply(state, success(0, attempt=2)), current)


def test_after_a_crash_what_was_running_runs_again_first_as_a_new_attempt() -> None:
    state = fold(opened(slots=2), batch(0, [5, 6, 7]), dispatched((0, 1), (1, 1)), success(1), opened(slots=3, epoch=2))
    assert decide(state, now=2.0) == Dispatch((Assignment(0, 5, 2), Assignment(2, 7, 1)))


def test_the_target_stops_the_campaign_and_running_evaluations_end() -> None:
    state = fold(opened(slots=2, target=0.9), batch(0, [5, 6, 7]), dispatched((0, 1), (1, 1)), success(0, 0.95))
    assert decide(state, now=1.0) == Stop("target reached")
    state = apply(state, StopRequested(time=1.0, reason="target reached"))
    assert decide(state, now=1.0) == Await()
    assert decide(apply(state, success(1)), now=1.0) == Close("finished", "target reached")


def test_the_time_budget_counts_sessions_and_not_the_pause_between_them() -> None:
    first = fold(
        opened(hours=1.0), batch(0, [5]), dispatched((0, 1)), success(0, time=1800.0),
        SessionClosed(time=1800.0, outcome="interrupted", reason=""),
    )  # fmt: skip
    again = apply(first, opened(time=1e6, epoch=2, hours=1.0))
    assert decide(again, now=1e6 + 1700.0) != Stop("time budget spent")
    assert decide(again, now=1e6 + 1801.0) == Stop("time budget spent")


def test_an_interrupted_batch_stays_untold_so_that_a_resume_goes_on_with_it() -> None:
    state = fold(
        opened(slots=1), batch(0, [5, 6]), dispatched((0, 1)), StopRequested(time=0.5, reason="interrupted"), success(0)
    )
    assert decide(state, now=1.0) == Close("interrupted", "interrupted")
    state = fold(*_events_of_interrupted(), opened(slots=1, epoch=2, time=5.0))
    assert decide(state, now=5.0) == Dispatch((Assignment(1, 6, 1),))


def _events_of_interrupted() -> list[Event]:
    return [
        opened(slots=1), batch(0, [5, 6]), dispatched((0, 1)), StopRequested(time=0.5, reason="interrupted"),
        success(0), SessionClosed(time=1.0, outcome="interrupted", reason="interrupted"),
    ]  # fmt: skip


def test_a_campaign_in_which_everything_fails_stops_with_the_first_cause() -> None:
    state = fold(opened(slots=1, evaluations=100), batch(0, list(range(100))))
    for trial in range(100):
        if decide(state, now=0.0) == Stop("everything fails"):
            break
        state = apply(state, dispatched((trial, 1)))
        state = apply(state, failure(trial, FailureKind.INVALID_VALUE, True))
    assert trial == state.rules.failures_before_giving_up < 100
    state = apply(state, StopRequested(time=1.0, reason="everything fails"))
    close = decide(state, now=1.0)
    assert isinstance(close, Close)
    assert close.outcome == "failed"
    assert "invalid value: why" in close.reason


def test_a_strategy_with_nothing_to_pull_ends_the_campaign() -> None:
    state = fold(
        opened(slots=1), batch(0, [5]), dispatched((0, 1)), success(0),
        ModelRefreshed(time=1.0, round=1, trials=(0,), dictionary_size=1, record={}, seconds=0.0),
        batch(1, [], reason="no arm is left"),
    )  # fmt: skip
    assert decide(state, now=1.0) == Close("finished", "no arm is left")


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), slots=st.integers(1, 4), evaluations=st.integers(1, 25))
def test_any_course_of_a_campaign_keeps_its_budget_and_ends_every_trial_once(
    seed: int, slots: int, evaluations: int
) -> None:
    """Random batches, orders of return, failures and crashes; a fold of the log equals the live state throughout."""
    chance = random.Random(seed)
    state, log, now, over = CampaignState(), [], 0.0, []

    def record(event: Event) -> None:
        nonlocal state
        log.append(event)
        state = apply(state, event)
        assert len(state.running) <= state.slots
        assert state.trials <= evaluations
        open_trials = len(state.running) + len(state.stock)
        assert state.trials == open_trials + state.succeeded + state.failed

    record(opened(slots=slots, evaluations=evaluations))
    for _ in range(2000):
        now += 1.0
        if chance.random() < 0.05:
            record(opened(slots=slots, evaluations=evaluations, time=now, epoch=state.epoch + 1))
        command = decide(state, now)
        match command:
            case Ask():
                size = chance.randint(1, min(command.limit, 6))
                record(batch(state.trials, [0] * size, now))
            case Dispatch():
                record(dispatched(*((a.trial, a.attempt) for a in command.assignments), time=now))
            case Tell():
                trials = tuple(finished.trial for finished in command.finished)
                record(
                    ModelRefreshed(
                        time=now, round=state.round + 1, trials=trials, dictionary_size=1, record={}, seconds=0
                    )
                )
            case Await():
                trial = chance.choice(sorted(state.running))
                attempt = state.running[trial].attempt
                kind = chance.choice([None, None, None, *FailureKind])
                if kind is None:
                    record(success(trial, attempt=attempt, time=now))
                else:
                    final = is_final(state, Failure(trial, attempt, kind, "why", 0.0, now, "w"))
                    record(failure(trial, kind, final, attempt, now))
                if trial not in state.running and all(a.trial != trial for a in state.stock):
                    over.append(trial)
            case Stop():
                record(StopRequested(time=now, reason=command.reason))
            case Close():
                break
    assert isinstance(command, Close)
    assert len(over) == len(set(over))
    if state.stop_reason == "":
        assert sorted(over) == list(range(evaluations))
    assert fold(*log) == state


def test_the_states_size_does_not_grow_with_finished_trials() -> None:
    state = fold(opened(slots=1, evaluations=10_000))
    for trial in range(50):
        for event in (batch(trial, [3]), dispatched((trial, 1)), success(trial)):
            state = apply(state, event)
        refreshed = ModelRefreshed(
            time=1.0, round=trial + 1, trials=(trial,), dictionary_size=1, record={}, seconds=0.0
        )
        state = apply(state, refreshed)
    assert (len(state.stock), len(state.running), len(state.losses), len(state.finished)) == (0, 0, 0, 0)
    assert replace(state, trials=0).succeeded == 50


def known(*values: float) -> ExistingTaken:
    return ExistingTaken(
        time=0.0, source="t.csv", arms=tuple(range(len(values))), values=values, unmatched=3, first_unmatched="row 1"
    )


@pytest.mark.parametrize(("direction", "sign"), [("maximize", 1.0), ("minimize", -1.0)])
def test_existing_data_are_told_first_and_cost_nothing(direction: str, sign: float) -> None:
    state = fold(known(2.0, -1.0), opened(direction=direction))
    assert decide(state, 0.0) == Begin((Observation(0, sign * 2.0), Observation(1, sign * -1.0)))
    begun = apply(state, ModelRefreshed(time=0.0, round=1, trials=(), dictionary_size=2, record={}, seconds=0.0))
    assert decide(begun, 0.0) == Ask(pending=(), limit=10)
    assert (begun.trials, begun.succeeded, begun.best, begun.existing) == (0, 0, None, None)
    assert (begun.existing_count, begun.existing_unmatched) == (2, 3)


def test_a_session_that_is_stopped_before_existing_data_are_told_leaves_them_to_the_next() -> None:
    stopped = fold(known(1.0), opened(), StopRequested(time=0.0, reason="interrupted"))
    assert decide(stopped, 0.0) == Close("interrupted", "interrupted")
    again = apply(apply(stopped, SessionClosed(time=0.0, outcome="interrupted", reason="")), opened(epoch=2))
    assert decide(again, 0.0) == Begin((Observation(0, 1.0),))
