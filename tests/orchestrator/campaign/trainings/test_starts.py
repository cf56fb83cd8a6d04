"""Tests of orchestrator/campaign/trainings/starts.py and of the decisions that follow from it."""

from dataclasses import replace

import numpy as np
import pytest

from orchestrator.bandit.results import Turn
from orchestrator.campaign.learned import LearnedModel
from orchestrator.campaign.state import CampaignState
from orchestrator.campaign.stops import step_limit, stop_cause, turn_of_stopped_trials
from orchestrator.campaign.trainings.reports import Forecast
from orchestrator.campaign.trainings.rule import StopCause
from orchestrator.campaign.trainings.rungs import StoppingRule
from orchestrator.campaign.trainings.starts import SHARE_OF_STARTS, first_reliable_pause
from tests.orchestrator.campaign.short_logs import fold, success
from tests.orchestrator.campaign.training_logs import END, opened, paused, refreshed, started

PAUSES = (4, 7, 13, 26)
LAST = 51
NEWEST = {"balances_starts": True, "bounds_starts": True, "has_checkpoints": True}
RULE = StoppingRule.pauses(3, LAST)


@pytest.mark.parametrize(
    ("reliability", "first_pause"),
    [
        ((1.0, 1.0, 1.0, 1.0), 4),
        ((0.2, 0.6, 0.7, 0.9), 7),
        ((0.1, 0.1, 0.2, 0.3), LAST),
    ],
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


def with_reliability(state: CampaignState, correlation: float, **rule: bool) -> CampaignState:
    """Return a state whose model was fitted, with trials that used half of the budget."""
    assert state.rules.training is not None
    learned = LearnedModel(
        inside=0,
        predicted=0,
        noise=0.0,
        most_pulled=0,
        most_pulls=0,
        evaluations=4,
        steps=((3, correlation), (5, correlation), (END, 1.0)),
    )
    training = replace(state.rules.training, **{**NEWEST, **rule})
    return replace(
        state,
        rules=replace(state.rules, training=training, steps=50 * END, stopping=StoppingRule.pauses(2, END)),
        refresh=replace(state.refresh, learned=learned),
        trainings=replace(state.trainings, steps=replace(state.trainings.steps, ended=25 * END)),
    )


@pytest.mark.parametrize(
    ("correlation", "chosen", "rule", "turn"),
    [
        (0.9, 4, {}, Turn.NEW_FIRST),
        (0.9, 4, {"balances_starts": False}, Turn.BY_BOUND),  # an older log
        (0.9, 60, {}, Turn.BY_BOUND),
        (0.2, 60, {}, Turn.PAUSED_FIRST),
        (0.2, 10, {}, Turn.BY_BOUND),
        (0.2, 60, {"bounds_starts": False}, Turn.BY_BOUND),  # an older log
    ],
)
def test_new_trials_and_then_stopped_ones_come_first_until_they_have_used_their_share(
    correlation: float, chosen: int, rule: dict[str, bool], turn: Turn
) -> None:
    state = paused(0.5, 0.6, 0.7, steps=500)
    assert turn_of_stopped_trials(state) == Turn.BY_BOUND  # nothing is learned yet
    state = replace(state, totals=replace(state.totals, chosen=chosen))
    assert turn_of_stopped_trials(with_reliability(state, correlation, **rule)) == turn


def test_stopped_trials_without_checkpoints_do_not_compete() -> None:
    assert turn_of_stopped_trials(paused(0.5, steps=500, continues="anew")) == Turn.NEW_FIRST


@pytest.mark.parametrize(("correlation", "limit"), [(0.9, 3), (0.2, None)])
def test_trial_does_not_pause_at_unreliable_steps(correlation: float, limit: int | None) -> None:
    assert step_limit(with_reliability(paused(0.5, steps=500), correlation), 7) == limit


@pytest.mark.parametrize(
    ("correlation", "rule", "cause"),
    [
        (0.9, {}, StopCause.FORECAST),
        (0.2, {}, None),
        (0.2, {"bounds_starts": False}, StopCause.FORECAST),  # an older log
    ],
)
def test_forecast_stops_no_trial_at_unreliable_steps(
    correlation: float, rule: dict[str, bool], cause: StopCause | None
) -> None:
    forecast = Forecast(trial=1, mean=0.2, low=0.1, high=0.3)
    state = fold(opened(500), *started(0.9, 0.1), success(0, 0.9), refreshed(forecast))
    assert stop_cause(with_reliability(state, correlation, **rule), 1) == cause
