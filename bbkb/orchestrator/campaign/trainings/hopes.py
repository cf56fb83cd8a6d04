"""Whether unfinished trials may still improve the results, by the forecasts of their ends."""

from dataclasses import dataclass, field

from bbkb.orchestrator.campaign.front import Front
from bbkb.orchestrator.campaign.goals import CampaignGoals
from bbkb.orchestrator.campaign.hypervolume import Point, hypervolume, is_as_good
from bbkb.orchestrator.campaign.trainings.reports import Forecast


@dataclass(frozen=True, slots=True)
class Hopes:
    """The goals, and the results that an unfinished trial has to improve."""

    goals: CampaignGoals
    best: float | None = None  # the value of the best result; None before the first
    front: Front = field(default_factory=Front)  # used with several objectives

    def are_lost(self, forecast: Forecast) -> bool:
        """Return whether a trial can neither be feasible nor improve the results.

        Even its optimistic forecast violates a constraint, is worse than the best value, or, with
        several objectives, is dominated by a result.
        """
        optimistic = self._optimistic(forecast)
        best = (one for one in self._best_rewards if one != optimistic)
        margins = forecast.further[len(self.goals.objectives) - 1 :]
        is_infeasible = any(band.high < 0.0 for band in margins)
        return is_infeasible or any(is_as_good(one, optimistic) for one in best)

    def are_left(self, forecast: Forecast) -> bool:
        """Return whether a trial may improve the results."""
        return not self.are_lost(forecast) and self._optimistic(forecast) not in self._best_rewards

    def promise(self, forecast: Forecast) -> Point:
        """Return numbers by which the most promising trial is the largest one.

        Trials that are expected to be feasible come first. One objective counts with its expected
        value, several with the rise of the front's hypervolume by the expected values, then by the
        optimistic ones.
        """
        objectives = len(self.goals.objectives)
        further = forecast.further
        is_feasible = float(all(band.mean >= 0.0 for band in further[objectives - 1 :]))
        first = self.goals.objectives[0].sign * forecast.mean
        if objectives == 1:
            return (is_feasible, first)
        values = (forecast.mean, *(band.mean for band in further[: objectives - 1]))
        expected = self._gain(self.goals.rewards(values))
        return (is_feasible, expected, self._gain(self._optimistic(forecast)), first)

    def optimistic_promise(self, forecast: Forecast) -> Point:
        """Return the same with the optimistic value of a single goal, for the order of
        checkpoints."""
        return self._optimistic(forecast) if self.goals.is_single else self.promise(forecast)

    @property
    def _best_rewards(self) -> list[Point]:
        if len(self.goals.objectives) > 1:
            return [member.rewards for member in self.front.members]
        return [] if self.best is None else [(self.goals.objectives[0].sign * self.best,)]

    def _optimistic(self, forecast: Forecast) -> Point:
        """Return the rewards at the optimistic end of the forecast."""
        highs = (forecast.high, *(band.high for band in forecast.further))
        return tuple(goal.sign * high for goal, high in zip(self.goals.objectives, highs, strict=False))

    def _gain(self, rewards: Point) -> float:
        """Return the rise of the front's hypervolume by a further result."""
        reference = self.front.reference(self.goals)
        if not reference:
            return 0.0
        points = [member.rewards for member in self.front.members]
        return hypervolume([*points, rewards], reference) - hypervolume(points, reference)
