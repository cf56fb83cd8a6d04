"""The trials that complete a budget."""

from dataclasses import replace

import pytest

from bbkb.orchestrator.campaign import settings
from bbkb.orchestrator.campaign.events import ComputingBegan, Event, ReportsArrived, StopReason
from bbkb.orchestrator.campaign.policy import (
    Ask,
    Await,
    Dispatch,
    Finish,
    Stop,
    StopCause,
    Tell,
    decide,
    failures_before_giving_up,
    stop_cause,
)
from bbkb.orchestrator.campaign.state import CampaignState
from bbkb.orchestrator.campaign.trainings import ENOUGH, Forecast
from bbkb.workers.messages import FailureKind
from tests.orchestrator.events import (
    END,
    batch,
    continued,
    dispatch,
    fail,
    failure,
    fold,
    fold_from,
    opened,
    paused,
    refresh,
    refreshed,
    reports,
    started,
    stop,
    success,
)
from tests.present import of_type
from tests.reported import reported


def reserved(state: CampaignState) -> tuple[int, ...] | None:
    """The trials that the remaining budget is reserved for; None: it is not reserved."""
    plan = state.end_of_budget
    return None if plan == ENOUGH else plan.trials


def test_end_of_budget_completes_the_best_stopped_trial() -> None:
    state = paused(0.1, 0.5, 0.9, steps=18)  # 12 are used, and a trial needs 6 more; two are over a third of the budget
    assert reserved(paused(0.1, 0.5, 0.9, steps=19)) is None
    assert reserved(state) == (2,)
    assert decide(state, 2.0) == Finish((2,))


def test_end_of_budget_completes_at_most_finish_trials_with_a_third_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [trial / 10 for trial in range(12)]  # 48 steps are used
    assert reserved(paused(*values, steps=60)) == (11, 10)
    assert reserved(paused(*values, steps=61)) is None
    assert reserved(paused(*values, steps=54)) == (11,)  # too late for two
    monkeypatch.setattr(settings, "FINISH", 1)
    assert reserved(paused(*values, steps=60)) is None


def test_trial_without_a_checkpoint_needs_all_of_its_steps() -> None:
    assert reserved(paused(0.1, 0.5, 0.9, steps=22)) is None
    assert reserved(paused(0.1, 0.5, 0.9, steps=22, continues="anew")) == (2,)


@pytest.mark.parametrize("steps", range(5, 40))
def test_end_of_budget_completes_some_trial_for_any_budget(steps: int) -> None:
    state = fold(opened(steps), *started(0.1, 0.5, 0.9))
    if state.trainings.steps.total <= steps <= state.trainings.steps.total + 6:
        kept_for = reserved(state)
        assert kept_for == (2,)
        causes = [stop_cause(state, trial) for trial in range(3)]
        assert causes == [StopCause.FINISH, StopCause.FINISH, None]


def after_a_whole_training(steps: int, *values: float) -> CampaignState:
    """A training has ended, and the running trials 1, 2, … have reported their values at steps 1 to
    4."""
    trials = range(1, len(values) + 1)
    return fold(
        opened(steps),
        *(*started(0.1), reports(0, 0.1, END, first=5), success(0, 0.1)),
        batch(1, [10 + trial for trial in trials]),
        dispatch(*((trial, 1) for trial in trials)),
        *(reports(trial, value, 4) for trial, value in zip(trials, values, strict=True)),
    )


def test_end_of_budget_completes_the_best_affordable_trial() -> None:
    state = fold_from(after_a_whole_training(24, 0.9, 0.5), stop(1, 0.9, 4), reports(2, 0.5, 5, first=5))
    assert reserved(fold_from(state, stop(2, 0.5, 5))) == (2,)  # 19 are used, and trial 1 needs 6 more
    both = fold_from(after_a_whole_training(24, 0.9, 0.5), stop(1, 0.9, 4), stop(2, 0.5, 4))
    assert reserved(both) == (1,)


def test_campaign_stops_if_its_remaining_steps_complete_no_trial() -> None:
    state = fold_from(after_a_whole_training(23, 0.9, 0.5), stop(1, 0.9, 4))
    assert reserved(state) == ()  # 18 are used, and each of both trials needs 6 more
    assert stop_cause(state, 2) is StopCause.SPENT
    assert isinstance(decide(state, 2.0), Tell)  # the results of the ended trials may change that
    state = fold_from(state, batch(3, [20]), ComputingBegan(time=2.0, what="refreshing"))
    assert isinstance(decide(state, 2.0), Await)  # no other trial starts meanwhile
    state = fold_from(state, refresh(0, 1))
    assert isinstance(decide(state, 3.0), Await)  # trial 2 is stopped at its next report, or ends
    state = fold_from(state, stop(2, 0.5, 4), refresh(2))
    assert decide(state, 4.0) == Stop(StopReason.STEPS_SPENT)


@pytest.mark.parametrize(("left", "plan"), [(END - 1, ()), (END, None)])
def test_no_trial_starts_that_the_remaining_steps_cannot_complete(left: int, plan: tuple[int, ...] | None) -> None:
    poor = Forecast(trial=1, mean=0.05, low=0.04, high=0.06)  # worse than the finished trial
    learned = replace(refreshed(poor), trials=(0, 1))
    state = fold_from(after_a_whole_training(14 + left, 0.9), stop(1, 0.9, 4), learned)
    assert reserved(state) == plan
    assert isinstance(decide(state, 3.0), Ask if plan is None else Stop)


def test_running_trial_within_reach_continues_before_it_has_a_forecast() -> None:
    poor = [Forecast(trial=1, mean=0.5, low=0.4, high=0.6)]
    state = fold_from(
        after_a_whole_training(26, 0.9, 0.5),
        *(stop(1, 0.9, 4), reports(2, 0.5, 5, first=5), stop(2, 0.5, 5)),
        *(continued(2), dispatch((2, 2))),
        *(refreshed(*poor), reports(2, 0.5, 9, attempt=2, first=6)),
    )
    assert reserved(state) == ()  # 23 are used, and trial 1 needs 6 more
    assert stop_cause(state, 2) is None


def test_spent_budget_completes_a_running_trial_if_none_has_finished() -> None:
    state = fold_from(fold(opened(11), *started(0.9, 0.5, 0.1)), stop(0, 0.9, 4))
    assert reserved(state) == (1,)
    assert [stop_cause(state, trial) for trial in (1, 2)] == [None, StopCause.FINISH]


@pytest.mark.parametrize("last_step", [END, None])
def test_spent_budget_completes_a_paused_trial_if_none_has_finished(last_step: int | None) -> None:
    state = paused(0.1, 0.9, 0.5, steps=12, last_step=last_step)
    for attempt, trial in enumerate((1, 2)):
        assert decide(state, 2.0) == Finish((trial,))
        state = fold_from(state, continued(trial, reason="finish"))
        assert isinstance(decide(state, 2.0), Dispatch)
        state = fold_from(state, dispatch((trial, 2)), reports(trial, 0.5, 5 + attempt, 2, first=5))
        assert stop_cause(state, trial) is None
        if not attempt:
            state = fold_from(state, failure(trial, FailureKind.ERROR, True, attempt=2))
    ended = fold_from(state, reports(2, 0.5, END, 2, first=7), success(2, 0.5, attempt=2))
    assert decide(ended, 3.0) == Stop(StopReason.STEPS_SPENT)


def test_spent_budget_ends_a_session_in_which_many_trials_fail() -> None:
    state = paused(*(trial / 40 for trial in range(40)), steps=160)
    failures = failures_before_giving_up(state.session.slots)
    for trial in range(39, 39 - failures, -1):
        assert decide(state, 2.0) == Finish((trial,))
        state = fold_from(
            state,
            continued(trial, reason="finish"),
            dispatch((trial, 2)),
            failure(trial, FailureKind.ERROR, True, attempt=2),
        )
    assert decide(state, 2.0) == Stop(StopReason.STEPS_SPENT)


def test_spent_budget_stops_all_but_completing_trials() -> None:
    state = fold_from(
        after_a_whole_training(22, 0.5, 0.9),
        stop(1, 0.5, 4),
        continued(1, reason="finish"),
        dispatch((1, 2)),
        reports(2, 0.9, 8, first=5),
    )
    assert state.trainings.steps.total == 22
    assert [stop_cause(state, trial) for trial in (1, 2)] == [None, StopCause.FINISH]


def test_steps_before_the_next_reports_are_not_available() -> None:
    """Trainings report at the steps 2, 4 and 10 only."""
    sparse = [reported(step, 0.1, 0, 1) for step in (2, 4, END)]
    sparse += [reported(4, 0.9, 1, 1), reported(4, 0.5, 2, 1)]
    begun: list[Event] = [
        batch(0, [10, 11, 12]),
        dispatch((0, 1), (1, 1), (2, 1)),
        ReportsArrived(time=1.0, reports=tuple(sparse)),
    ]
    for steps, kept_for in ((31, None), (30, (1,)), (28, (2,))):  # trial 2 is on its way to its end
        state = fold(opened(steps), *begun, success(0, 0.1), stop(1, 0.9, 4))
        assert state.trainings.steps.total == 18
        assert reserved(state) == kept_for


def test_queued_trials_wait_while_the_budget_is_reserved_for_others() -> None:
    state = fold_from(paused(0.1, 0.5, 0.9, steps=18), batch(3, [20, 21]))
    assert decide(state, 2.0) == Finish((2,))
    state = fold_from(state, continued(2, reason="finish"))
    sent = of_type(Dispatch, decide(state, 2.0))
    assert [trial.id for trial in sent.trials] == [2]
    assert isinstance(decide(fold_from(state, dispatch((2, 2))), 2.0), Await)


def test_completing_trial_overtakes_the_queue() -> None:
    state = fold_from(paused(0.9, steps=10), batch(1, [20, 21, 22]))
    assert decide(state, 2.0) == Finish((0,))
    sent = of_type(Dispatch, decide(fold_from(state, continued(0, reason="finish")), 2.0))
    assert [trial.id for trial in sent.trials] == [0]


def test_best_trial_is_retried_after_its_worker_is_lost() -> None:
    state = fold_from(
        fold(opened(19), *started(0.1, 0.5, 0.9)),
        stop(0, 0.1, 4), stop(1, 0.5, 4), reports(2, 0.9, 9, first=5),
    )  # fmt: skip
    sent = of_type(Dispatch, decide(fail(state, 2, FailureKind.WORKER_LOST), 100.0))
    assert [trial.id for trial in sent.trials] == [2]


def test_queued_trials_start_while_the_budget_is_not_reserved() -> None:
    sent = of_type(Dispatch, decide(fold_from(paused(0.1, 0.5, 0.9, steps=100), batch(3, [20, 21])), 2.0))
    assert [trial.id for trial in sent.trials] == [3, 4]


def test_forecasts_decide_which_trial_is_completed() -> None:
    state = fold_from(
        paused(0.1, 0.5, 0.9, steps=18),
        refreshed(Forecast(trial=0, mean=1.0, low=0.9, high=1.1), Forecast(trial=2, mean=0.9, low=0.8, high=1.0)),
    )
    assert reserved(state) == (0,)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_diverged_trial_is_not_completed(value: float) -> None:
    forecasts = refreshed(*(Forecast(trial=trial, mean=trial, low=trial - 1, high=trial + 1) for trial in range(3)))
    before = paused(0.1, 0.5, 0.9, steps=18)
    diverged = fold_from(
        before,
        forecasts,
        continued(2),
        dispatch((2, 2)),
        reports(2, value, 5, attempt=2, first=5),
    )
    assert reserved(fold_from(before, forecasts)) == (2,)
    assert reserved(diverged) == (1,)
    assert stop_cause(diverged, 2) is StopCause.FINISH


def test_completing_trial_is_kept_when_another_one_looks_better() -> None:
    state = fold_from(
        paused(0.1, 0.5, 0.9, steps=18),
        continued(2, reason="finish"),
        dispatch((2, 2)),
        reports(2, 0.8, 6, attempt=2),
        refreshed(Forecast(trial=0, mean=1.0, low=0.9, high=1.1), Forecast(trial=2, mean=0.9, low=0.8, high=1.0)),
    )
    assert reserved(state) == (2,)
    assert stop_cause(state, 2) is None


def test_steps_of_a_trial_continued_from_its_checkpoint_count_once() -> None:
    events = (
        continued(2, reason="finish"), dispatch((2, 2)), reports(2, 0.9, 6, attempt=2),
    )  # fmt: skip
    assert fold_from(paused(0.1, 0.5, 0.9, steps=60), *events).trainings.steps.total == 4 + 4 + 6
    assert fold_from(paused(0.1, 0.5, 0.9, steps=60, continues="anew"), *events).trainings.steps.total == 4 + 4 + 4 + 6


@pytest.mark.parametrize("steps", [None, 2000])
def test_hopeful_trials_are_all_completed_after_the_last_evaluation(steps: int | None) -> None:
    state = fold_from(
        paused(0.1, 0.5, 0.9, steps=steps, evaluations=3),
        refreshed(*(Forecast(trial=trial, mean=trial, low=trial - 1, high=trial + 1) for trial in range(3))),
    )
    assert decide(state, 2.0) == Finish((2, 1, 0))


def test_strategy_is_asked_while_evaluations_are_left() -> None:
    state = paused(0.1, 0.5, 0.9, steps=None, evaluations=4)
    assert isinstance(decide(state, 2.0), Ask)
