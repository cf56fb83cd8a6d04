"""Whether unfinished trials may still become the best, by the forecasts of their ends."""

from dataclasses import dataclass

from bbkb.orchestrator.campaign.trainings.reports import Forecast


@dataclass(frozen=True, slots=True)
class Hopes:
    """The best result, which an unfinished trial has to improve."""

    sign: float  # turns a value into a reward
    best: float | None = None  # the reward of the best result; None before the first

    def are_lost(self, forecast: Forecast) -> bool:
        """Return whether even the optimistic forecast of a trial is worse than the best result."""
        return self.best is not None and self.optimistic(forecast) < self.best

    def are_left(self, forecast: Forecast) -> bool:
        """Return whether a trial may improve the best result."""
        return self.best is None or self.optimistic(forecast) > self.best

    def expected(self, forecast: Forecast) -> float:
        """Return the expected final reward."""
        return self.sign * forecast.mean

    def optimistic(self, forecast: Forecast) -> float:
        """Return the optimistic final reward."""
        return self.sign * forecast.high
