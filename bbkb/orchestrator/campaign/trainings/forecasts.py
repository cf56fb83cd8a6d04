"""The forecasts of unfinished trials, and whether these may still become the best."""

from dataclasses import dataclass

from bbkb.orchestrator.bandit.strategy import TrialForecast
from bbkb.orchestrator.campaign.goals import CampaignGoals


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The model's forecast of the final value of an unfinished trial, on the user's scale."""

    trial: int
    mean: float  # the expected value
    # two standard deviations of the model's score below it (above it if values are minimized)
    low: float
    high: float  # two standard deviations of the score above it


def forecast_of(expected: TrialForecast, goals: CampaignGoals) -> Forecast:
    """Return a strategy's forecast on the user's scale."""
    mean, low, high = map(goals.value, (expected.mean, expected.low, expected.high))
    return Forecast(trial=expected.trial, mean=mean, low=low, high=high)


@dataclass(frozen=True, slots=True)
class Hopes:
    """The best result, which an unfinished trial has to improve."""

    goals: CampaignGoals
    best: float | None = None  # the reward of the best result; None before the first

    def are_lost(self, forecast: Forecast) -> bool:
        """Return whether even the optimistic forecast of a trial is worse than the best result."""
        return self.best is not None and self.optimistic(forecast) < self.best

    def are_left(self, forecast: Forecast) -> bool:
        """Return whether a trial may improve the best result."""
        return self.best is None or self.optimistic(forecast) > self.best

    def expected(self, forecast: Forecast) -> float:
        """Return the expected final reward."""
        return self.goals.reward(forecast.mean)

    def optimistic(self, forecast: Forecast) -> float:
        """Return the optimistic final reward."""
        return self.goals.reward(forecast.high)
