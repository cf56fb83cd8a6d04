"""Tests of orchestrator/campaign/stops.py: stops, step limits, and the turn of stopped trials."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from bbkb.orchestrator.bandit.results import Turn
from bbkb.orchestrator.campaign.events import ReportsArrived
from bbkb.orchestrator.campaign.policy import (
    SHARE_OF_STARTS,
    StopCause,
    first_learned_step,
    first_reliable_pause,
    step_limit,
    stop_cause,
    turn_of_stopped_trials,
)
from bbkb.orchestrator.campaign.settings import ModelStopping, plain
from bbkb.orchestrator.campaign.state import CampaignState, LearnedModel
from bbkb.orchestrator.campaign.trainings import Forecast, StoppingRule
from bbkb.workers.messages import FailureKind
from tests.orchestrator.events import (
    END,
    batch,
    continued,
    dispatch,
    failure,
    fold,
    fold_from,
    opened,
    opening,
    paused,
    refreshed,
    reports,
    started,
    stop,
    success,
)
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
