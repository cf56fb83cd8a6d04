"""Stops, step limits, the turn of stopped trials, and the trials that complete a budget."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from bbkb.orchestrator.bandit.results import Turn
from bbkb.orchestrator.campaign import settings
from bbkb.orchestrator.campaign.events import ComputingBegan, Event, ReportsArrived, StopCause, StopReason
from bbkb.orchestrator.campaign.policy import (
    SHARE_OF_STARTS,
    Ask,
    Await,
    Dispatch,
    Finish,
    Stop,
    Tell,
    decide,
    failures_before_giving_up,
    first_learned_step,
    first_reliable_pause,
    step_limit,
    stop_cause,
    turn_of_stopped_trials,
)
from bbkb.orchestrator.campaign.settings import ModelStopping, plain
from bbkb.orchestrator.campaign.state import CampaignState, LearnedModel
from bbkb.orchestrator.campaign.trainings import ENOUGH, Forecast, StoppingRule
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
    opening,
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

PAUSES = (4, 7, 13, 26)
LAST = 51
RULE = StoppingRule.pauses(3, LAST)


@pytest.mark.parametrize(
    ("steps", "ends_at"), [((1, 2, 3, 4, 5, 6, 7), 5), ((4, 16, 52), 4), ((3, 6, 9), 6), ((9,), 9)]
)
def test_first_training_ends_at_the_report_nearest_to_its_steps(steps: tuple[int, ...], ends_at: int) -> None:
    rule = opened(1000, first_trials=4, first_steps=5, last_step=100)
    state = fold(rule, batch(0, [7]), dispatch((0, 1)))
    for step in steps:
        state = fold_from(state, ReportsArrived(time=1.0, reports=(reported(step, 0.5, 0, 1),)))
        if stop_cause(state, 0) is not None:
            break
    assert (stop_cause(state, 0), state.trainings.curves[0].step) == (StopCause.FIRST_TRAINING, ends_at)


def test_trial_with_a_checkpoint_pauses_half_way_at_any_rank() -> None:
    state = fold(opened(1000), *started(0.1, 0.5, 0.9))
    assert [stop_cause(state, trial) for trial in range(3)] == [None] * 3
    state = fold_from(state, reports(2, 0.9, 5, first=5))
    assert [stop_cause(state, trial) for trial in range(3)] == [None, None, StopCause.PAUSE]


def test_step_limit_is_the_next_pause() -> None:
    rule = opened(1000, first_trials=1, first_steps=4)
    state = fold(rule, batch(0, [10, 11]))
    assert [step_limit(state, trial) for trial in (0, 1)] == [4, 5]
    assert step_limit(fold(opened(10), batch(0, [7])), 0) == 5  # with any budget
    state = fold_from(state, dispatch((0, 1), (1, 1)), reports(0, 0.5, 4), stop(0, 0.5, 4))
    assert step_limit(fold_from(state, continued(0)), 0) == 5
    state = fold_from(state, reports(1, 0.9, 6), stop(1, 0.9, 6))  # stopped a step late: its pause at 5 is over
    assert step_limit(fold_from(state, continued(1)), 1) is None


def test_step_limit_is_none_for_witnesses_and_completing_trials() -> None:
    state = fold(opened(1000, evaluations=100), batch(0, list(range(80))))
    assert step_limit(state, 79) is None  # a witness
    assert [step_limit(state, trial) for trial in (19, 59, 78)] == [5, 5, 5]
    assert step_limit(fold(opened(1000, continues="anew"), batch(0, [7])), 0) is None  # compared, not paused
    assert [step_limit(paused(0.1, 0.5, 0.9, steps=1000), trial) for trial in range(3)] == [5, 5, 5]
    near_the_end = paused(0.1, 0.5, 0.9, steps=18)  # the 6 steps left are those that one trial needs
    assert near_the_end.end_of_budget.trials == (2,)
    assert [step_limit(near_the_end, trial) for trial in range(3)] == [5, 5, None]


def test_one_trial_does_not_pause_until_the_last_step_is_known() -> None:
    state = fold(opened(1000, last_step=None), batch(0, [7, 8, 9]), dispatch((0, 1), (1, 1), (2, 1)))
    assert [step_limit(state, trial) for trial in range(3)] == [None, 3, 3]
    state = fold_from(state, *(reports(trial, 0.5, 3) for trial in range(3)))
    assert [stop_cause(state, trial) for trial in range(3)] == [None, StopCause.PAUSE, StopCause.PAUSE]
    failed = fold_from(state, failure(0, FailureKind.ERROR, True))  # the next one takes its place
    assert [stop_cause(failed, trial) for trial in (1, 2)] == [None, StopCause.PAUSE]
    state = fold_from(state, reports(0, 0.5, END, first=4), success(0, 0.5))
    assert [stop_cause(state, trial) for trial in (1, 2)] == [StopCause.PAUSE, StopCause.PAUSE]
    assert step_limit(fold_from(state, batch(3, [6])), 3) == END // 2  # as if the end had been given


def test_trial_is_not_paused_twice_at_a_step_reported_with_its_end() -> None:
    state = fold(opened(1000), batch(0, [10]), dispatch((0, 1)), reports(0, 0.9, 4))
    ended = replace(stop(0, 0.9, 5), reports=(reported(5, 0.9),))
    events = (continued(0), dispatch((0, 2)))
    state = fold_from(state, ended, *events, reports(0, 0.9, 6, attempt=2, first=6))
    assert stop_cause(state, 0) is None


def test_continued_trial_runs_from_its_pause_to_its_end() -> None:
    before = fold(opened(1000), *started(0.1, 0.5, 0.9), reports(2, 0.9, 5, first=5), stop(2, 0.9, 5))
    events = (continued(2), dispatch((2, 2)))
    for until in (9, END):
        state = fold_from(before, *events, reports(2, 0.9, until, attempt=2, first=6))
        assert stop_cause(state, 2) is None


def test_forecast_stops_new_trials_but_not_continued_ones() -> None:
    poor = [Forecast(trial=trial, mean=0.1, low=0.0, high=0.2) for trial in range(2)]
    before = fold(opened(1000), *started(0.1, 0.1, 0.9), success(2, 0.9), stop(1, 0.1, 4), refreshed(*poor))
    state = fold_from(before, continued(1), dispatch((1, 2)))
    assert [stop_cause(state, trial) for trial in range(2)] == [StopCause.FORECAST, None]
    paused_again = fold_from(state, reports(1, 0.1, 5, attempt=2, first=5))
    assert stop_cause(paused_again, 1) is StopCause.PAUSE


def test_trial_at_its_last_step_is_not_stopped() -> None:
    events = (*started(0.1, 0.5, 0.9), *(reports(trial, 0.1, END, first=5) for trial in range(2)))
    state = fold(opened(END * 2 + 6), *events)  # the remaining steps complete one trial
    assert state.end_of_budget.trials == (2,)
    assert [stop_cause(state, trial) for trial in range(3)] == [None, None, None]


def test_last_step_is_unknown_after_a_training_that_ended_early() -> None:
    """Trial 3 ended at step 9 by itself; the others train on after that."""
    asha = {"rule": "asha", "reduction": 3.0, "after": 1}
    rule = opening({**plain(opened(None).settings), "early_stopping": asha})
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


def test_trial_that_would_restart_is_stopped_only_if_worse_than_others() -> None:
    state = fold(opened(1000, continues="anew"), *started(0.1, 0.2, 0.3, 0.4, 0.5))
    state = fold_from(state, *(reports(trial, 0.1 * trial, 5, first=5) for trial in range(5)))
    causes = [stop_cause(state, trial) for trial in range(5)]
    assert causes == [StopCause.WORSE_THAN_OTHERS] * 3 + [None] * 2


@pytest.mark.parametrize(
    ("reliability", "first_pause"),
    [((1.0, 1.0, 1.0, 1.0), 4), ((0.2, 0.6, 0.7, 0.9), 7), ((0.1, 0.1, 0.2, 0.3), LAST)],
)
def test_first_pause_is_at_the_first_reliable_step(reliability: tuple[float, ...], first_pause: int) -> None:
    assert first_reliable_pause(RULE, LAST, dict(zip(PAUSES, reliability, strict=True))) == first_pause


@pytest.mark.parametrize("rho", [0.6, 0.8, 0.95])
def test_share_of_starts_has_most_of_the_gain_of_the_best_number_of_starts(rho: float) -> None:
    """The oracle is simulated successive halving of independent trials with a budget of 20."""
    budget = 20 * LAST
    correlations = [np.sqrt(1.0 - (1.0 - rho**2) * (1.0 - np.log(p / 4) / np.log(LAST / 4))) for p in PAUSES]
    rng = np.random.default_rng(0)

    def best_found(count: int) -> float:
        values = [rng.standard_normal((500, count))]
        for before, after in zip(correlations, [*correlations[1:], 1.0], strict=True):
            link = before / after
            values.append(link * values[-1] + np.sqrt(1.0 - link**2) * rng.standard_normal((500, count)))
        shares = np.linspace(0.0, 1.0, 200)
        costs = count * (np.diff((0, *PAUSES, LAST)) * shares[:, None] ** np.arange(5)).sum(axis=1)
        share = shares[costs <= budget].max()
        left = np.zeros((500, count), np.bool_)
        for stage, value in enumerate(values[:-1], start=1):
            scores = np.where(left, -np.inf, value)
            kept = max(1, round(count * share**stage))
            left = scores < -np.sort(-scores, axis=1)[:, kept - 1 : kept]
        return float(np.where(left, -np.inf, values[-1]).max(axis=1).mean())

    started = SHARE_OF_STARTS * budget / PAUSES[0]
    none, best = best_found(20), max(best_found(count) for count in (40, 80, 120, 160, 200))
    assert best_found(round(started)) - none > 0.5 * (best - none)


def with_reliability(
    state: CampaignState, correlation: float, cautious: float | None = None, **rule: bool
) -> CampaignState:
    """Return a state whose model was fitted, with trials that used half of the budget.

    `cautious`: the cautious correlation, if it is smaller.
    """
    pairs = [((3, at), (5, at), (END, 1.0)) for at in (correlation, cautious or correlation)]
    learned = LearnedModel(inside=0, predicted=0, steps=pairs[0], cautious_steps=pairs[1])
    settings = state.settings
    assert isinstance(settings.early_stopping, ModelStopping)
    settings = replace(
        settings,
        budget=replace(settings.budget, steps=50 * END),
        early_stopping=replace(settings.early_stopping, after=2, continues=True),
    )
    return replace(
        state,
        settings=settings,
        refresh=replace(state.refresh, learned=learned),
        trainings=replace(state.trainings, steps=replace(state.trainings.steps, ended=25 * END)),
    )


@pytest.mark.parametrize(
    ("correlation", "chosen", "turn"),
    [
        (0.9, 4, Turn.NEW_FIRST),
        (0.9, 60, Turn.BY_BOUND),
        (0.2, 60, Turn.BY_BOUND),  # the values of paused trials tell nothing
    ],
)
def test_new_trials_and_then_stopped_ones_come_first_until_they_have_used_their_share(
    correlation: float, chosen: int, turn: Turn
) -> None:
    state = paused(0.5, 0.6, 0.7, steps=500)
    assert turn_of_stopped_trials(state) == Turn.BY_BOUND  # nothing is learned yet
    state = replace(state, totals=replace(state.totals, chosen=chosen))
    assert turn_of_stopped_trials(with_reliability(state, correlation)) == turn


@pytest.mark.parametrize(("reported", "turn"), [((1, 2, 3, 4), Turn.NEW_FIRST), ((1, END - 1), Turn.BY_BOUND)])
def test_new_trials_use_steps_up_to_the_report_at_which_they_pause(reported: Sequence[int], turn: Turn) -> None:
    state = with_reliability(paused(0.5, steps=500), 0.9)
    steps = replace(state.trainings.steps, distinct=frozenset(reported))
    trainings = replace(state.trainings, steps=steps)
    state = replace(state, totals=replace(state.totals, chosen=20), trainings=trainings)
    assert turn_of_stopped_trials(state) == turn


def test_stopped_trials_without_checkpoints_do_not_compete() -> None:
    assert turn_of_stopped_trials(paused(0.5, steps=500, continues="anew")) == Turn.NEW_FIRST


@pytest.mark.parametrize(
    ("correlation", "cautious", "limit", "learned_from"),
    [
        (0.9, 0.9, 3, 0),
        (0.9, 0.2, None, 0),  # it may be reliable
        (0.2, 0.1, None, END),
    ],
)
def test_trial_neither_pauses_nor_is_learned_at_unreliable_steps(
    correlation: float, cautious: float, limit: int | None, learned_from: int
) -> None:
    state = with_reliability(paused(0.5, steps=500), correlation, cautious)
    assert (step_limit(state, 7), first_learned_step(state)) == (limit, learned_from)


@pytest.mark.parametrize(("correlation", "cause"), [(0.9, StopCause.FORECAST), (0.2, None)])
def test_forecast_stops_no_trial_at_unreliable_steps(correlation: float, cause: StopCause | None) -> None:
    forecast = Forecast(trial=1, mean=0.2, low=0.1, high=0.3)
    state = fold(opened(500), *started(0.9, 0.1), success(0, 0.9), refreshed(forecast))
    assert stop_cause(with_reliability(state, correlation), 1) == cause


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


@pytest.mark.parametrize(("continues", "first", "repeated"), [(True, 5, 0), (True, 1, 4), ("anew", 1, 4)])
def test_steps_count_again_only_for_a_continued_trial_that_restarts(
    continues: bool | str, first: int, repeated: int
) -> None:
    begun = fold_from(
        paused(0.1, 0.5, 0.9, steps=60, continues=continues),
        continued(2, reason="finish"),
        dispatch((2, 2)),
    )
    reported_before = reports(2, 0.9, 6, attempt=2, first=first)
    ended = replace(stop(2, 0.9, 6), attempt=2)
    for events in ([reported_before], [reported_before, ended], [replace(ended, reports=reported_before.reports)]):
        assert fold_from(begun, *events).trainings.steps.total == 4 + 4 + repeated + 6


def test_trial_whose_checkpoint_is_missing_needs_the_steps_that_it_has_not_repeated() -> None:
    running: list[Event] = [continued(2), dispatch((2, 2)), reports(2, 0.9, 2, attempt=2)]  # 14 steps are used
    ended = [*running, replace(stop(2, 0.9, 2), attempt=2)]
    for steps, events, kept_for in ((22, running, (2,)), (23, running, None), (24, ended, (2,)), (25, ended, None)):
        assert reserved(fold_from(paused(0.1, 0.5, 0.9, steps=steps), *events)) == kept_for
    state = fold_from(paused(0.1, 0.5, 0.9, steps=60), *ended, ComputingBegan(time=2.0, what="refreshing"))
    assert state.trainings.learned_paused == (0, 1, 2)  # the strategy may continue it


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
