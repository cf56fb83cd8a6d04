"""Which unfinished trials may still become the best."""

import pytest

from bbkb.orchestrator.bandit.strategy import TrialForecast
from bbkb.orchestrator.campaign.goals import CampaignGoals, ObjectiveGoal
from bbkb.orchestrator.campaign.trainings import Forecast, Hopes, forecast_of

MAXIMIZED, MINIMIZED = (CampaignGoals((ObjectiveGoal(metric="value", is_maximized=is_),)) for is_ in (True, False))


def forecast(reward: float, goals: CampaignGoals) -> Forecast:
    return forecast_of(TrialForecast(0, reward, reward - 0.5, reward + 0.5, 0.0, 1.0), goals)


def test_forecast_is_on_the_users_scale() -> None:
    assert forecast(-2.0, MINIMIZED) == Forecast(trial=0, mean=2.0, low=2.5, high=1.5)


@pytest.mark.parametrize("goals", [MAXIMIZED, MINIMIZED])
def test_trial_is_hopeless_if_even_its_optimistic_end_is_worse_than_the_best(goals: CampaignGoals) -> None:
    worse, equal, better = (forecast(reward, goals) for reward in (-2.0, -1.5, -1.2))
    hopes = Hopes(goals, -1.0)
    assert [hopes.are_lost(one) for one in (worse, equal, better)] == [True, False, False]
    assert [hopes.are_left(one) for one in (worse, equal, better)] == [False, False, True]
    assert sorted([better, worse, equal], key=hopes.expected) == [worse, equal, better]


def test_every_trial_may_become_the_best_before_the_first_result() -> None:
    hopes = Hopes(MAXIMIZED)
    assert hopes.are_left(forecast(-9.0, MAXIMIZED))
    assert not hopes.are_lost(forecast(-9.0, MAXIMIZED))
