"""Trainings in steps: counted steps, kept checkpoints, and which unfinished trials may become the best."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bbkb.orchestrator.bandit.strategy import TrialForecast
from bbkb.orchestrator.campaign import settings
from bbkb.orchestrator.campaign.events import CheckpointsRemoved, ComputingBegan
from bbkb.orchestrator.campaign.goals import CampaignGoals, Objective
from bbkb.orchestrator.campaign.policy import Ask, RemoveCheckpoints, Tell, decide
from bbkb.orchestrator.campaign.state import CampaignState
from bbkb.orchestrator.campaign.status import status_of
from bbkb.orchestrator.campaign.trainings import Forecast, Hopes, Steps, Trainings, forecast_of
from tests.orchestrator.events import (
    batch,
    continued,
    dispatch,
    fold,
    fold_from,
    opened,
    paused,
    refresh,
    refreshed,
    started,
    stop,
    success,
)
from tests.reported import reported


def reported_at(*reports: tuple[int, int]) -> Steps:
    """Return a draft after these reports of a trial at a step."""
    steps = Steps().draft()
    steps.report([reported(step, 0.5, trial) for trial, step in reports])
    return steps


def test_steps_count_reports_that_arrive_with_the_result() -> None:
    steps = reported_at((0, 2))
    steps.end(0, [reported(step, 0.5) for step in (1, 2, 3)])
    assert (steps.total, dict(steps.open)) == (3, {})


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 30))), st.sets(st.integers(0, 4)))
def test_steps_count_the_largest_step_of_each_trial(reports: list[tuple[int, int]], ended: set[int]) -> None:
    steps = reported_at(*reports[:2])
    steps.report([reported(step, 0.5, trial) for trial, step in reports[2:]])
    for trial in ended:
        steps.end(trial)
    largest = {trial: max([0, *(step for other, step in reports if other == trial)]) for trial in range(5)}
    assert steps.total == sum(max(1, steps) if trial in ended else steps for trial, steps in largest.items())


def test_next_report_is_expected_at_the_steps_of_other_trials() -> None:
    steps = reported_at((0, 4), (0, 12), (0, 36), (1, 4))
    assert [steps.until_next_report(step) for step in (4, 12)] == [8, 24]
    assert steps.until_next_report(36) == 24  # none has gone further: as from 12 to 36
    assert reported_at((0, 1), (0, 2), (0, 3)).until_next_report(3) == 1
    assert Steps().until_next_report(0) == 1


def test_next_report_is_the_next_step_after_many_distinct_steps() -> None:
    steps = reported_at(*((0, step) for step in range(2, 500, 2)))
    assert len(steps.distinct) == 64
    assert [steps.until_next_report(step) for step in (1, 100, 400)] == [1, 1, 1]


@pytest.fixture(autouse=True)
def one_is_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "FINISH", 1)


def keeps_one(*values: float, stalled: bool = False) -> CampaignState:
    """Trials 0 to 2 are stopped and learned, and a fourth one was stopped since; one checkpoint is
    to be kept."""
    rule = opened(None, keep_checkpoints=1)
    state = fold(rule, *started(*values), *(stop(trial, value, 4) for trial, value in enumerate(values[:3])))
    forecasts = [Forecast(trial=trial, mean=value, low=0.0, high=value) for trial, value in enumerate(values[:3])]
    learned = replace(refreshed(*forecasts), trials=(0, 1, 2))
    waits = [replace(batch(4, []), limit=1, time=2.0)] * stalled
    refreshing = ComputingBegan(time=1.5, what="refreshing")
    return fold_from(state, refreshing, learned, *waits, stop(3, values[3], 4))


def test_checkpoint_of_a_trial_without_a_new_forecast_is_kept() -> None:
    state = keeps_one(0.1, 0.5, 0.9, 0.3, stalled=True)
    assert decide(state, 2.0) == RemoveCheckpoints((0, 1))


def test_strategy_learns_removed_checkpoints_before_it_chooses() -> None:
    """Also when a process dies after the event: the strategy of the next session would continue the
    trial for ever."""
    state = keeps_one(0.1, 0.5, 0.9, 0.3, stalled=True)
    removed = CheckpointsRemoved(time=2.0, trials=(0, 1))
    again = replace(opened(None), time=3.0, epoch=2)
    state = fold_from(state, removed, again)
    command = decide(state, 3.0)
    assert isinstance(command, Tell)
    began = ComputingBegan(time=3.5, what="refreshing")
    state = fold_from(state, began, refresh(3, time=4.0, round_=2))
    assert isinstance(decide(state, 4.0), Ask)


def test_last_gain_is_not_in_the_future_after_trials_continue() -> None:
    """A continued trial does not count as ended any more."""
    state = fold_from(paused(0.1, 0.5, 0.9, steps=None), batch(3, [20]), dispatch((3, 1)), success(3, 1.0))
    for campaign in (state, fold_from(state, continued(0, 1, 2, reason="finish"))):
        assert status_of(campaign, 2.0).model.last_gain == 0


MAXIMIZED, MINIMIZED = (CampaignGoals((Objective("value", direction),)) for direction in ("maximize", "minimize"))


def forecast(reward: float, goals: CampaignGoals, trial: int = 0) -> Forecast:
    return forecast_of(TrialForecast(trial, reward, reward - 0.5, reward + 0.5, 0.0, 1.0), goals)


def test_forecast_is_on_the_users_scale() -> None:
    assert forecast(-2.0, MINIMIZED) == Forecast(trial=0, mean=2.0, low=2.5, high=1.5)


@pytest.mark.parametrize("goals", [MAXIMIZED, MINIMIZED])
def test_trial_is_hopeless_if_even_its_optimistic_end_is_worse_than_the_best(goals: CampaignGoals) -> None:
    forecasts = {trial: forecast(reward, goals, trial) for trial, reward in enumerate((-2.0, -1.5, -1.2, -1.1))}
    trainings = Trainings(forecasts=forecasts)
    hopes, before = Hopes(goals, -1.0), Hopes(goals)
    assert [trainings.is_hopeless(trial, hopes) for trial in range(4)] == [True, False, False, False]
    assert trainings.best_unfinished(range(4), hopes) == [3, 2]
    assert not trainings.is_hopeless(0, before)  # every trial may become the best before the first result
    assert trainings.best_unfinished(range(4), before) == [3, 2, 1, 0]
