"""Tests of orchestrator/campaign/training.py and of what a campaign decides by it: which trials the
rest of a budget is for, and what a trial that is taken up again costs."""

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.campaign.commands import Ask, Await, Dispatch, Finish, RemoveCheckpoints, Stop, Tell
from orchestrator.campaign.endings import StopReason
from orchestrator.campaign.events import (
    CheckpointsRemoved,
    ComputingBegan,
    ContinuedTrial,
    Event,
    ModelRefreshed,
    ReportsArrived,
    SessionOpened,
    TrialsContinued,
    TrialStopped,
)
from orchestrator.campaign.policy import decide
from orchestrator.campaign.state import CampaignState
from orchestrator.campaign.status import status_of
from orchestrator.campaign.stops import step_limit, stop_cause
from orchestrator.campaign.trainings.end_of_budget import Enough
from orchestrator.campaign.trainings.reports import Forecast, StepReport
from orchestrator.campaign.trainings.rule import StopCause
from tests.orchestrator.campaign.short_logs import batch, dispatch, fail, fold, fold_from, opening, settings_of, success
from workers.messages import FailureKind

END = 10


def opened(steps: int | None, evaluations: int = 50, **changes: object) -> SessionOpened:
    settings = settings_of(evaluations, strategy={"mode": "async"})
    settings["budget"]["steps"] = steps
    settings["early_stopping"] = {
        "rule": "model", "after": 3, "finish": 2, "continues": True, "last_step": END, **changes,
    }  # fmt: skip
    return opening(settings)


def reports(trial: int, value: float, until: int, attempt: int = 1, first: int = 1) -> ReportsArrived:
    steps = range(first, until + 1)
    values = tuple(StepReport(trial, attempt, step, value) for step in steps)
    return ReportsArrived(time=1.0, reports=values)


def stop(trial: int, value: float, step: int) -> TrialStopped:
    return TrialStopped(
        time=1.0, trial=trial, attempt=1, value=value, step=step, started=0.0, finished=1.0, worker="w"
    )  # fmt: skip


def started(*values: float) -> list[Event]:
    """Trials 0, 1, … that have reported their values at the steps 1 to 4."""
    trials = range(len(values))
    return [
        batch(0, [10 + trial for trial in trials]),
        dispatch(*((trial, 1) for trial in trials)),
        *(reports(trial, value, 4) for trial, value in zip(trials, values, strict=True)),
    ]


def paused(*values: float, **rule: Any) -> CampaignState:
    return fold(opened(**rule), *started(*values), *(stop(trial, value, 4) for trial, value in enumerate(values)))


def reserved(state: CampaignState) -> tuple[int, ...] | None:
    """The trials that the remaining budget is reserved for; None: it is not reserved."""
    plan = state.end_of_budget
    return None if isinstance(plan, Enough) else plan.trials


def refreshed(*forecasts: Forecast) -> ModelRefreshed:
    return ModelRefreshed(
        time=2.0, round=1, trials=(), dictionary_size=1, record={}, seconds=0.0, forecasts=forecasts
    )  # fmt: skip


def test_nothing_is_kept_of_a_large_budget() -> None:
    state = paused(0.1, 0.5, 0.9, steps=100)
    assert reserved(state) is None
    assert isinstance(decide(state, 2.0), Ask)


def test_the_rest_of_a_budget_completes_the_best_stopped_trials() -> None:
    state = paused(0.1, 0.5, 0.9, steps=18)  # 12 are used, and a trial needs 6 more; two are over a third of the budget
    assert reserved(paused(0.1, 0.5, 0.9, steps=19)) is None
    assert reserved(state) == (2,)
    assert decide(state, 2.0) == Finish((2,))


def test_as_many_trials_are_completed_as_are_asked_for_and_a_third_of_the_budget_pays_for() -> None:
    values = [trial / 10 for trial in range(12)]  # 48 steps are used
    assert reserved(paused(*values, steps=60)) == (11, 10)
    assert reserved(paused(*values, steps=61)) is None
    assert reserved(paused(*values, steps=60, finish=1)) is None
    assert reserved(paused(*values, steps=54)) == (11,)  # too late for two


def test_a_trial_without_a_checkpoint_needs_all_of_its_steps() -> None:
    assert reserved(paused(0.1, 0.5, 0.9, steps=22)) is None
    assert reserved(paused(0.1, 0.5, 0.9, steps=22, continues="anew")) == (2,)


@pytest.mark.parametrize("steps", range(5, 40))
def test_some_trial_is_completed_whatever_the_budget(steps: int) -> None:
    state = fold(opened(steps), *started(0.1, 0.5, 0.9))
    if state.trainings.steps.total <= steps <= state.trainings.steps.total + 6:
        kept_for = reserved(state)
        assert kept_for == (2,)
        causes = [stop_cause(state, trial) for trial in range(3)]
        assert causes == [StopCause.FINISH, StopCause.FINISH, None]


def after_a_whole_training(steps: int, *values: float) -> CampaignState:
    """A training has ended, and trials 1, 2, … run that have reported their values at the steps 1
    to 4."""
    trials = range(1, len(values) + 1)
    return fold(
        opened(steps),
        *(*started(0.1), reports(0, 0.1, END, first=5), success(0, 0.1)),
        batch(1, [10 + trial for trial in trials]),
        dispatch(*((trial, 1) for trial in trials)),
        *(reports(trial, value, 4) for trial, value in zip(trials, values, strict=True)),
    )


def test_the_best_trial_that_the_rest_of_a_budget_completes_is_completed() -> None:
    state = fold_from(after_a_whole_training(24, 0.9, 0.5), stop(1, 0.9, 4), reports(2, 0.5, 5, first=5))
    assert reserved(fold_from(state, stop(2, 0.5, 5))) == (2,)  # 19 are used, and trial 1 needs 6 more
    both = fold_from(after_a_whole_training(24, 0.9, 0.5), stop(1, 0.9, 4), stop(2, 0.5, 4))
    assert reserved(both) == (1,)


def test_a_campaign_ends_when_the_rest_of_its_budget_completes_no_trial() -> None:
    state = fold_from(after_a_whole_training(23, 0.9, 0.5), stop(1, 0.9, 4))
    assert reserved(state) == ()  # 18 are used, and each of both trials needs 6 more
    assert stop_cause(state, 2) is StopCause.SPENT
    assert isinstance(decide(state, 2.0), Tell)  # what the ended trials show may change that
    learned = ModelRefreshed(time=2.0, round=1, trials=(0, 1), dictionary_size=1, record={}, seconds=0.0)
    state = fold_from(state, batch(3, [20]), ComputingBegan(time=2.0, what="refreshing"))
    assert isinstance(decide(state, 2.0), Await)  # nothing else is begun meanwhile
    state = fold_from(state, learned)
    assert isinstance(decide(state, 3.0), Await)  # trial 2 is stopped at its next report, or ends
    state = fold_from(state, stop(2, 0.5, 4), replace(learned, trials=(2,)))
    assert decide(state, 4.0) == Stop(StopReason.STEPS_SPENT)


def test_a_running_trial_that_the_rest_of_a_budget_completes_goes_on_before_the_model_knows_it() -> None:
    poor = [Forecast(trial=1, mean=0.5, low=0.4, high=0.6)]
    again = ContinuedTrial(trial=2, arm=12, attempt=1, parameters={})
    state = fold_from(
        after_a_whole_training(26, 0.9, 0.5),
        *(stop(1, 0.9, 4), reports(2, 0.5, 5, first=5), stop(2, 0.5, 5)),
        *(TrialsContinued(time=2.0, trials=(again,), reason="promising"), dispatch((2, 2))),
        *(refreshed(*poor), reports(2, 0.5, 9, attempt=2, first=6)),
    )
    assert reserved(state) == ()  # 23 are used, and trial 1 needs 6 more
    assert stop_cause(state, 2) is None


def test_once_a_budget_is_spent_a_running_trial_is_completed_if_none_has_ended() -> None:
    state = fold_from(fold(opened(11), *started(0.9, 0.5, 0.1)), stop(0, 0.9, 4))
    assert reserved(state) == (1,)
    assert [stop_cause(state, trial) for trial in (1, 2)] == [None, StopCause.FINISH]


def test_when_a_budget_is_spent_only_trials_that_are_being_completed_go_on() -> None:
    again = ContinuedTrial(trial=1, arm=11, attempt=1, parameters={})
    state = fold_from(
        after_a_whole_training(22, 0.5, 0.9),
        stop(1, 0.5, 4),
        TrialsContinued(time=2.0, trials=(again,), reason="finish"),
        dispatch((1, 2)),
        reports(2, 0.9, 8, first=5),
    )
    assert state.trainings.steps.total == 22
    assert [stop_cause(state, trial) for trial in (1, 2)] == [None, StopCause.FINISH]


def test_steps_on_the_way_to_the_next_reports_are_not_left() -> None:
    """Trainings report at the steps 2, 4 and 10 only."""
    sparse = [StepReport(0, 1, step, 0.1) for step in (2, 4, END)]
    sparse += [StepReport(1, 1, 4, 0.9), StepReport(2, 1, 4, 0.5)]
    begun: list[Event] = [
        batch(0, [10, 11, 12]),
        dispatch((0, 1), (1, 1), (2, 1)),
        ReportsArrived(time=1.0, reports=tuple(sparse)),
    ]
    for steps, kept_for in ((31, None), (30, (1,)), (28, (2,))):  # trial 2 is on its way to its end
        state = fold(opened(steps), *begun, success(0, 0.1), stop(1, 0.9, 4))
        assert state.trainings.steps.total == 18
        assert reserved(state) == kept_for


def test_trials_that_were_chosen_before_wait_while_the_rest_of_a_budget_is_for_others() -> None:
    state = fold_from(paused(0.1, 0.5, 0.9, steps=18), batch(3, [20, 21]))
    assert decide(state, 2.0) == Finish((2,))
    again = ContinuedTrial(trial=2, arm=12, attempt=1, parameters={})
    state = fold_from(state, TrialsContinued(time=2.0, trials=(again,), reason="finish"))
    sent = decide(state, 2.0)
    assert isinstance(sent, Dispatch)
    assert [assignment.trial for assignment in sent.assignments] == [2]
    assert isinstance(decide(fold_from(state, dispatch((2, 2))), 2.0), Await)


def test_a_trial_that_is_completed_comes_before_those_that_were_chosen_before_it() -> None:
    state = fold_from(paused(0.9, steps=10), batch(1, [20, 21, 22]))
    assert decide(state, 2.0) == Finish((0,))
    again = ContinuedTrial(trial=0, arm=10, attempt=1, parameters={})
    sent = decide(fold_from(state, TrialsContinued(time=2.0, trials=(again,), reason="finish")), 2.0)
    assert isinstance(sent, Dispatch)
    assert [assignment.trial for assignment in sent.assignments] == [0]


def test_the_best_trial_is_completed_again_when_its_worker_is_lost() -> None:
    state = fold_from(
        fold(opened(19), *started(0.1, 0.5, 0.9)),
        stop(0, 0.1, 4), stop(1, 0.5, 4), reports(2, 0.9, 9, first=5),
    )  # fmt: skip
    sent = decide(fail(state, 2, FailureKind.WORKER_LOST), 100.0)
    assert isinstance(sent, Dispatch)
    assert [assignment.trial for assignment in sent.assignments] == [2]


def test_trials_that_were_chosen_before_begin_while_there_is_more_of_a_budget() -> None:
    sent = decide(fold_from(paused(0.1, 0.5, 0.9, steps=100), batch(3, [20, 21])), 2.0)
    assert isinstance(sent, Dispatch)
    assert [assignment.trial for assignment in sent.assignments] == [3, 4]


def test_forecasts_decide_which_trials_are_completed() -> None:
    state = fold_from(
        paused(0.1, 0.5, 0.9, steps=18),
        refreshed(Forecast(trial=0, mean=1.0, low=0.9, high=1.1), Forecast(trial=2, mean=0.9, low=0.8, high=1.0)),
    )
    assert reserved(state) == (0,)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_trial_whose_last_value_is_not_finite_is_not_completed(value: float) -> None:
    forecasts = refreshed(*(Forecast(trial=trial, mean=trial, low=trial - 1, high=trial + 1) for trial in range(3)))
    before = paused(0.1, 0.5, 0.9, steps=18)
    again = ContinuedTrial(trial=2, arm=12, attempt=1, parameters={})
    diverged = fold_from(
        before,
        forecasts,
        TrialsContinued(time=2.0, trials=(again,), reason="promising"),
        dispatch((2, 2)),
        reports(2, value, 5, attempt=2, first=5),
    )
    assert reserved(fold_from(before, forecasts)) == (2,)
    assert reserved(diverged) == (1,)
    assert stop_cause(diverged, 2) is StopCause.FINISH


def test_a_trial_that_is_being_completed_is_not_given_up_for_one_that_looks_better_for_a_while() -> None:
    again = ContinuedTrial(trial=2, arm=12, attempt=1, parameters={})
    state = fold_from(
        paused(0.1, 0.5, 0.9, steps=18),
        TrialsContinued(time=2.0, trials=(again,), reason="finish"),
        dispatch((2, 2)),
        reports(2, 0.8, 6, attempt=2),
        refreshed(Forecast(trial=0, mean=1.0, low=0.9, high=1.1), Forecast(trial=2, mean=0.9, low=0.8, high=1.0)),
    )
    assert reserved(state) == (2,)
    assert stop_cause(state, 2) is None


def test_the_steps_of_a_trial_that_goes_on_from_its_checkpoint_count_once() -> None:
    again = ContinuedTrial(trial=2, arm=12, attempt=1, parameters={})
    events = (
        TrialsContinued(time=2.0, trials=(again,), reason="finish"), dispatch((2, 2)), reports(2, 0.9, 6, attempt=2),
    )  # fmt: skip
    assert fold_from(paused(0.1, 0.5, 0.9, steps=60), *events).trainings.steps.total == 4 + 4 + 6
    assert fold_from(paused(0.1, 0.5, 0.9, steps=60, continues="anew"), *events).trainings.steps.total == 4 + 4 + 4 + 6


@pytest.mark.parametrize("steps", [None, 2000])
def test_after_the_last_evaluation_all_trials_that_may_become_the_best_are_completed(steps: int | None) -> None:
    state = fold_from(
        paused(0.1, 0.5, 0.9, steps=steps, evaluations=3, finish=1),
        refreshed(*(Forecast(trial=trial, mean=trial, low=trial - 1, high=trial + 1) for trial in range(3))),
    )
    assert decide(state, 2.0) == Finish((2, 1, 0))


def test_a_batch_is_chosen_while_evaluations_are_left() -> None:
    state = paused(0.1, 0.5, 0.9, steps=None, evaluations=4)
    assert isinstance(decide(state, 2.0), Ask)


@pytest.mark.parametrize(
    ("steps", "ends_at"), [((1, 2, 3, 4, 5, 6, 7), 5), ((4, 16, 52), 4), ((3, 6, 9), 6), ((9,), 9)]
)
def test_a_short_first_training_ends_at_the_report_nearest_to_its_steps(steps: tuple[int, ...], ends_at: int) -> None:
    rule = opened(1000, first_trials=4, first_steps=5, last_step=100)
    state = fold(rule, batch(0, [7]), dispatch((0, 1)))
    for step in steps:
        state = fold_from(state, ReportsArrived(time=1.0, reports=(StepReport(0, 1, step, 0.5),)))
        if stop_cause(state, 0) is not None:
            break
    assert (stop_cause(state, 0), state.trainings.curves[0].step) == (StopCause.FIRST_TRAINING, ends_at)


def test_a_trial_with_a_checkpoint_pauses_half_way_whatever_its_rank() -> None:
    state = fold(opened(1000), *started(0.1, 0.5, 0.9))
    assert [stop_cause(state, trial) for trial in range(3)] == [None] * 3
    state = fold_from(state, reports(2, 0.9, 5, first=5))
    assert [stop_cause(state, trial) for trial in range(3)] == [None, None, StopCause.PAUSE]


def test_an_attempt_is_limited_to_the_next_pause_of_its_trial() -> None:
    rule = opened(1000, first_trials=1, first_steps=4)
    state = fold(rule, batch(0, [7, 8]))
    assert [step_limit(state, trial) for trial in (0, 1)] == [4, 5]
    state = fold_from(state, dispatch((0, 1), (1, 1)), reports(0, 0.5, 4), stop(0, 0.5, 4))
    again = ContinuedTrial(trial=0, arm=7, attempt=1, parameters={})
    assert step_limit(fold_from(state, TrialsContinued(time=2.0, trials=(again,), reason="promising")), 0) == 5
    state = fold_from(state, reports(1, 0.9, 6), stop(1, 0.9, 6))  # stopped a step late: its pause at 5 is over
    again = ContinuedTrial(trial=1, arm=8, attempt=1, parameters={})
    assert step_limit(fold_from(state, TrialsContinued(time=2.0, trials=(again,), reason="promising")), 1) is None


def test_witnesses_and_the_trials_to_finish_have_no_step_limit() -> None:
    state = fold(opened(1000, evaluations=100), batch(0, list(range(80))))
    assert step_limit(state, 79) is None  # a witness
    assert [step_limit(state, trial) for trial in (19, 59, 78)] == [5, 5, 5]
    assert step_limit(fold(opened(1000, continues="anew"), batch(0, [7])), 0) is None  # compared, not paused
    assert [step_limit(paused(0.1, 0.5, 0.9, steps=1000), trial) for trial in range(3)] == [5, 5, 5]
    near_the_end = paused(0.1, 0.5, 0.9, steps=18)  # the 6 steps left are those that one trial needs
    assert reserved(near_the_end) == (2,)
    assert [step_limit(near_the_end, trial) for trial in range(3)] == [5, 5, None]


def test_an_attempt_that_could_use_up_the_budget_has_no_step_limit() -> None:
    for workers, steps, limits in ((1, 6, [5]), (1, 5, [None]), (2, 11, [5, 5]), (2, 10, [None, None])):
        trials = list(range(workers))
        state = fold(opened(steps), batch(0, [7, 8][:workers]), dispatch(*((trial, 1) for trial in trials)))
        assert [step_limit(state, trial) for trial in trials] == limits


def test_a_trial_whose_pause_was_reported_with_its_end_is_not_paused_there_again() -> None:
    state = fold(opened(1000), batch(0, [7]), dispatch((0, 1)), reports(0, 0.9, 4))
    ended = replace(stop(0, 0.9, 5), reports=((5, 0.9),))
    again = ContinuedTrial(trial=0, arm=7, attempt=1, parameters={})
    events = (TrialsContinued(time=2.0, trials=(again,), reason="promising"), dispatch((0, 2)))
    state = fold_from(state, ended, *events, reports(0, 0.9, 6, attempt=2, first=6))
    assert stop_cause(state, 0) is None


def test_a_trial_that_was_continued_runs_from_its_pause_to_the_end() -> None:
    again = ContinuedTrial(trial=2, arm=12, attempt=1, parameters={})
    before = fold(opened(1000), *started(0.1, 0.5, 0.9), reports(2, 0.9, 5, first=5), stop(2, 0.9, 5))
    events = (TrialsContinued(time=2.0, trials=(again,), reason="promising"), dispatch((2, 2)))
    for until in (9, END):
        state = fold_from(before, *events, reports(2, 0.9, until, attempt=2, first=6))
        assert stop_cause(state, 2) is None


def test_a_forecast_stops_a_new_trial_but_a_continued_one_only_at_its_next_pause() -> None:
    poor = [Forecast(trial=trial, mean=0.1, low=0.0, high=0.2) for trial in range(2)]
    again = ContinuedTrial(trial=1, arm=11, attempt=1, parameters={})
    before = fold(opened(1000), *started(0.1, 0.1, 0.9), success(2, 0.9), stop(1, 0.1, 4), refreshed(*poor))
    state = fold_from(before, TrialsContinued(time=2.0, trials=(again,), reason="promising"), dispatch((1, 2)))
    assert [stop_cause(state, trial) for trial in range(2)] == [StopCause.FORECAST, None]
    paused_again = fold_from(state, reports(1, 0.1, 5, attempt=2, first=5))
    assert stop_cause(paused_again, 1) is StopCause.PAUSE


def test_nothing_is_stopped_at_its_last_step() -> None:
    events = (*started(0.1, 0.5, 0.9), *(reports(trial, 0.1, END, first=5) for trial in range(2)))
    state = fold(opened(END * 2 + 6), *events)  # what is left completes one trial
    assert reserved(state) == (2,)
    assert [stop_cause(state, trial) for trial in range(3)] == [None, None, None]


def test_the_end_of_a_short_training_is_not_that_of_one_that_goes_further() -> None:
    """Trial 3 ended at step 9 by itself; the others train on after that."""
    asha = {"rule": "asha", "reduction": 3.0, "first_step": 1}
    rule = opening({**opened(None).settings, "early_stopping": asha})
    values = (0.1, 0.2, 0.8, 0.9)
    events = (
        *started(*values),
        *(reports(trial, value, 9, first=5) for trial, value in enumerate(values)),
        success(3, 0.9),
    )
    state = fold(rule, *events)
    assert [stop_cause(state, trial) for trial in range(3)] == [None, None, None]
    state = fold_from(state, reports(2, 0.8, 12, first=10))
    assert [stop_cause(state, trial) for trial in range(2)] == [StopCause.WORSE_THAN_OTHERS] * 2


def test_a_trial_that_would_begin_anew_is_stopped_only_when_it_is_worse_than_others() -> None:
    state = fold(opened(1000, continues="anew"), *started(0.1, 0.2, 0.3, 0.4, 0.5))
    state = fold_from(state, *(reports(trial, 0.1 * trial, 5, first=5) for trial in range(5)))
    causes = [stop_cause(state, trial) for trial in range(5)]
    assert causes == [StopCause.WORSE_THAN_OTHERS] * 3 + [None] * 2


def keeps_one(*values: float, stalled: bool = False) -> CampaignState:
    """Trials 0 to 2 are stopped and learned, and a fourth one was stopped since; one checkpoint is
    to be kept."""
    rule = opened(None, finish=1, keep_checkpoints=1)
    state = fold(rule, *started(*values), *(stop(trial, value, 4) for trial, value in enumerate(values[:3])))
    forecasts = [Forecast(trial=trial, mean=value, low=0.0, high=value) for trial, value in enumerate(values[:3])]
    learned = replace(refreshed(*forecasts), trials=(0, 1, 2))
    waits = [replace(batch(4, []), limit=1, time=2.0)] * stalled
    refreshing = ComputingBegan(time=1.5, what="refreshing")
    return fold_from(state, refreshing, learned, *waits, stop(3, values[3], 4))


def test_a_trial_without_a_forecast_costs_no_better_trial_its_checkpoint() -> None:
    state = keeps_one(0.1, 0.5, 0.9, 0.3, stalled=True)
    assert decide(state, 2.0) == RemoveCheckpoints((0, 1))


def test_the_strategy_learns_that_checkpoints_were_removed_before_it_chooses() -> None:
    """Also when a process dies after the event: the strategy of the next session would continue the
    trial for ever."""
    state = keeps_one(0.1, 0.5, 0.9, 0.3, stalled=True)
    removed = CheckpointsRemoved(time=2.0, trials=(0, 1))
    again = replace(opened(None), time=3.0, epoch=2)
    state = fold_from(state, removed, again)
    command = decide(state, 3.0)
    assert isinstance(command, Tell)
    learned = ModelRefreshed(time=4.0, round=2, trials=(3,), dictionary_size=1, record={}, seconds=0.0)
    state = fold_from(state, ComputingBegan(time=3.5, what="refreshing"), learned)
    assert isinstance(decide(state, 4.0), Ask)


def test_the_last_gain_is_not_in_the_future_after_trials_were_continued() -> None:
    """A continued trial does not count as ended any more."""
    state = fold_from(paused(0.1, 0.5, 0.9, steps=None), batch(3, [20]), dispatch((3, 1)), success(3, 1.0))
    again = [ContinuedTrial(trial=trial, arm=10 + trial, attempt=1, parameters={}) for trial in range(3)]
    continued = fold_from(state, TrialsContinued(time=2.0, trials=tuple(again), reason="finish"))
    assert [status_of("run", campaign, 2.0).model.last_gain for campaign in (state, continued)] == [0, 0]
