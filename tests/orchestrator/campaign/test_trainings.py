"""Trainings in steps: counted steps, kept checkpoints, which may become the best, and which are stopped at rungs."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bbkb.orchestrator.bandit.strategy import Observation, TrialForecast
from bbkb.orchestrator.campaign import settings
from bbkb.orchestrator.campaign.events import CheckpointsRemoved, ComputingBegan, TrialStopped
from bbkb.orchestrator.campaign.goals import CampaignGoals, Objective
from bbkb.orchestrator.campaign.policy import Ask, RemoveCheckpoints, Tell, decide
from bbkb.orchestrator.campaign.state import CampaignState
from bbkb.orchestrator.campaign.status import status_of
from bbkb.orchestrator.campaign.trainings import Forecast, Hopes, Rungs, Steps, StoppingRule, Trainings, forecast_of
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
    session,
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


ASHA = StoppingRule.asha(3.0, 1)


@pytest.mark.parametrize("first_step", [1, 2, 5])
@pytest.mark.parametrize("reduction", [2.0, 3.0, 4.0])
def test_rung_begins_at_its_step(first_step: int, reduction: float) -> None:
    rule = StoppingRule.asha(reduction, first_step)
    for number in range(1, 8):
        step = int(first_step * reduction**number)
        assert (rule.rung(step - 1), rule.rung(step)) == (number - 1, number)


def rungs_after_step_1(rewards: list[float]) -> Rungs:
    """Trial i reported rewards[i] at step 1."""
    rungs = Rungs().draft()
    for trial, reward in enumerate(rewards):
        rungs.report(ASHA, trial, 1, reward)
    return rungs


def test_rung_counts_a_trial_once() -> None:
    rungs = rungs_after_step_1([0.1, 0.2, 0.3])
    again = rungs.draft()
    again.report(ASHA, 0, 2, 0.9)
    assert (again.rewards, again.last_rungs) == (rungs.rewards, rungs.last_rungs)


def test_rungs_keep_the_reports_of_an_ended_trial() -> None:
    rungs = rungs_after_step_1([0.1, 0.2, 0.9])
    rungs.remove([2])
    assert rungs.stops(ASHA, 0)
    assert not rungs.stops(ASHA, 2)


REWARDS = st.integers(-3, 3).map(float) | st.floats(-1e6, 1e6) | st.just(math.nan)


@given(st.lists(REWARDS, min_size=1, max_size=60), st.sampled_from([2.0, 3.0, 4.0]))
def test_asha_continues_the_best_share_and_all_of_few(rewards: list[float], reduction: float) -> None:
    """The oracle sorts the rewards. Equal trials continue together; NaN is the worst reward."""
    rule, rungs = StoppingRule.asha(reduction, 1), Rungs().draft()
    for trial, reward in enumerate(rewards):
        rungs.report(rule, trial, 1, reward)
    known = [-math.inf if math.isnan(reward) else reward for reward in rewards]
    threshold = sorted(known)[-max(1, int(len(known) / reduction + 1e-9))]
    is_few = len(known) < rule.least
    expected = [trial for trial, reward in enumerate(known) if is_few or reward >= threshold]
    assert [trial for trial in range(len(known)) if not rungs.stops(rule, trial)] == expected


def test_median_rule_stops_the_worse_half() -> None:
    rule, rungs = StoppingRule.median(3), Rungs().draft()
    for trial in range(8):
        rungs.report(rule, trial, 3, float(trial))
    assert [trial for trial in range(8) if rungs.stops(rule, trial)] == [0, 1, 2, 3]
    assert rule.rung(2) is None


@pytest.mark.parametrize(
    ("after", "last_step", "steps"),
    [
        (3, 52, [4, 7, 13, 26]),
        (3, 51, [4, 7, 13, 26]),
        (5, 160, [5, 10, 20, 40, 80]),
        (13, 52, [13, 26]),
        (14, 52, [26]),
        (27, 52, []),
        (60, 52, []),
        (1, 2, [1]),
        (3, None, [3, 6, 12, 24, 48, 96]),
    ],
)
def test_pauses_halve_a_training_and_none_is_before_their_first_step(
    after: int, last_step: int | None, steps: list[int]
) -> None:
    rule = StoppingRule.pauses(after, last_step)
    before_the_end = range(1, last_step or 100)
    assert [step for step in before_the_end if rule.rung(step) != rule.rung(step - 1)] == steps


@given(st.integers(1, 50), st.integers(2, 500), st.integers(0, 500))
def test_next_rung_begins_at_the_smallest_step_that_reaches_it(after: int, last_step: int, step: int) -> None:
    rule = StoppingRule.pauses(min(after, last_step), last_step)
    following = rule.step_of_next_rung(step)
    assert following > step
    assert rule.rung(following) == (0 if rule.rung(step) is None else (rule.rung(step) or 0) + 1)
    assert rule.rung(following - 1) == rule.rung(step)


@given(st.lists(st.floats(-1e6, 1e6) | st.just(math.nan), min_size=1, max_size=9))
def test_pauses_stop_every_trial_once_at_each_rung(rewards: list[float]) -> None:
    rule, rungs = StoppingRule.pauses(3, 52), Rungs().draft()
    for trial, reward in enumerate(rewards):
        rungs.report(rule, trial, 3, reward)
        assert not rungs.stops(rule, trial)
        for at, between in ((4, 6), (7, 12), (13, 25), (26, 51)):
            rungs.report(rule, trial, at, reward)
            assert rungs.stops(rule, trial)
            rungs.excuse([trial])
            assert not rungs.stops(rule, trial)
            rungs.report(rule, trial, between, reward)
            assert not rungs.stops(rule, trial)


def test_asha_keeps_a_good_trial_after_one_bad_step() -> None:
    """Trial 0 was the best of all at step 1 and has a bad third step, which is the next rung."""
    rungs = rungs_after_step_1([0.9, 0.5, 0.4, 0.3, 0.2, 0.1])
    for trial, reward in enumerate([0.1, 0.6, 0.5, 0.4, 0.3, 0.2]):
        rungs.report(ASHA, trial, 3, reward)
    assert [trial for trial in range(6) if not rungs.stops(ASHA, trial)] == [0, 1]


@given(st.lists(st.floats(-1, 1) | st.just(math.nan), min_size=1, max_size=9))
def test_rung_has_the_best_report_of_a_trial(rewards: list[float]) -> None:
    rungs = Rungs().draft()
    for step, reward in enumerate(rewards, start=1):
        rungs.report(ASHA, 0, step, reward)
    for number, step in enumerate((1, 3, 9)):
        if step <= len(rewards):
            seen = [reward for reward in rewards[:step] if not math.isnan(reward)]
            assert rungs.rewards[number] == (max(seen, default=-math.inf),)


def test_rungs_forget_the_standing_of_an_ended_trial() -> None:
    rungs = Rungs().draft()
    rungs.report(ASHA, 0, 0, 0.5)
    rungs.report(ASHA, 1, 1, 0.5)
    rungs.remove([0, 1])
    assert (dict(rungs.last_rungs), dict(rungs.best)) == ({}, {})


def test_strategy_learns_the_last_value_of_a_stopped_trial() -> None:
    stop = TrialStopped(time=2.0, trial=0, attempt=1, value=0.4, step=3, started=0.0, finished=2.0, worker="w")
    state = fold(session(direction="minimize"), batch(0, [7]), dispatch((0, 1)), stop)
    assert [trial.observation for trial in state.finished] == [Observation(7, -0.4, is_stopped=True)]
    assert state.results.best is None
