"""The goals of a campaign: one or more objectives, each of them a metric with a direction, and
constraints on metrics.

Pure values, read from the resolved campaign file. `value` is the metric name of the objective's
return value. The recorded value of a result is always the metric of the first objective.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from bbkb.orchestrator.bandit.goals import Goals

VALUE = "value"  # the metric that an objective returns as its value


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveGoal:
    """A metric to maximize or minimize."""

    metric: str
    is_maximized: bool = True
    # a value that is barely acceptable, the reference of hypervolumes; None: the worst result
    reference: float | None = None

    def reward(self, value: float) -> float:
        """Return a value as a reward, which is maximized."""
        return value if self.is_maximized else -value

    def value(self, reward: float) -> float:
        """Return the value of a reward; 0 instead of −0."""
        return 0.0 + (reward if self.is_maximized else -reward)

    @property
    def direction(self) -> str:
        """The direction in a campaign file."""
        return "maximize" if self.is_maximized else "minimize"

    def __str__(self) -> str:
        return f"{self.metric} {self.direction}d"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstraintGoal:
    """A metric that must not be above `at_most` or below `at_least`. Exactly one bound is given."""

    metric: str
    at_most: float | None = None
    at_least: float | None = None

    def margin(self, value: float) -> float:
        """Return the margin of `value` inside the constraint: at least 0 if the constraint holds."""
        above = math.inf if self.at_least is None else value - self.at_least
        return above if self.at_most is None else min(self.at_most - value, above)

    @property
    def bounds(self) -> str:
        """The bounds in words, such as `at most 4`."""
        bounds = (("at least", self.at_least), ("at most", self.at_most))
        return " and ".join(f"{words} {bound:.6g}" for words, bound in bounds if bound is not None)

    def __str__(self) -> str:
        return f"{self.metric} {self.bounds}"


@dataclass(frozen=True, slots=True)
class CampaignGoals:
    """The objectives (at least one) and the constraints."""

    objectives: tuple[ObjectiveGoal, ...] = (ObjectiveGoal(metric=VALUE),)
    constraints: tuple[ConstraintGoal, ...] = ()

    @staticmethod
    def of(settings: Mapping[str, Any]) -> "CampaignGoals":
        """Read the goals from a resolved campaign file."""
        is_maximized = settings["objective"].get("direction", "maximize") == "maximize"
        named = tuple(
            ObjectiveGoal(
                metric=section["metric"],
                is_maximized=section.get("direction", "maximize") == "maximize",
                reference=section.get("reference"),
            )
            for section in settings.get("objectives", ())
        )
        constraints = tuple(ConstraintGoal(**section) for section in settings.get("constraints", ()))
        return CampaignGoals(named or (ObjectiveGoal(metric=VALUE, is_maximized=is_maximized),), constraints)

    def plain(self) -> dict[str, Any]:
        """Return the campaign file's sections that `of` reads, apart from its objective."""
        return {
            "objectives": [
                {"metric": goal.metric, "direction": goal.direction, "reference": goal.reference}
                for goal in self.objectives
            ],
            "constraints": [asdict(constraint) for constraint in self.constraints],
        }

    @property
    def is_single(self) -> bool:
        """Whether there is one objective and no constraint."""
        return len(self.objectives) == 1 and not self.constraints

    @property
    def further_metrics(self) -> tuple[str, ...]:
        """The metrics of objectives and constraints, each once, except the first objective's."""
        names = [*(goal.metric for goal in self.objectives), *(goal.metric for goal in self.constraints)]
        return tuple(dict.fromkeys(names))[1:]

    @property
    def for_strategy(self) -> Goals:
        """The number of objectives and of constraints."""
        return Goals(len(self.objectives), len(self.constraints))

    def values(self, value: float, metrics: Mapping[str, float]) -> tuple[float, ...]:
        """Return the objectives' values in a result, on the user's scale. `value` is the first one.

        Raises KeyError if a metric is missing.
        """
        return tuple(self._metric(objective.metric, value, metrics) for objective in self.objectives)

    def margins(self, value: float, metrics: Mapping[str, float]) -> tuple[float, ...]:
        """Return the distances of a result from the bounds. A missing metric raises KeyError."""
        return tuple(
            constraint.margin(self._metric(constraint.metric, value, metrics)) for constraint in self.constraints
        )

    def reward(self, value: float) -> float:
        """Return a value of the first objective as a reward to maximize."""
        return self.objectives[0].reward(value)

    def value(self, reward: float) -> float:
        """Return the value of a reward of the first objective."""
        return self.objectives[0].value(reward)

    def rewards(self, values: Mapping[str, float]) -> dict[str, float]:
        """Return the rewards to maximize of those objectives whose metrics are in `values`."""
        return {
            objective.metric: objective.reward(values[objective.metric])
            for objective in self.objectives
            if objective.metric in values
        }

    def further(self, value: float, metrics: Mapping[str, float]) -> tuple[float, ...]:
        """Return rewards of all objectives but the first, then margins (see `Observation`)."""
        return (*self.order(value, metrics)[1:], *self.margins(value, metrics))

    def order(self, value: float, metrics: Mapping[str, float]) -> tuple[float, ...]:
        """Return the sort key of a result, its rewards: the best result has the largest key."""
        pairs = zip(self.objectives, self.values(value, metrics), strict=True)
        return tuple(objective.reward(number) for objective, number in pairs)

    def is_feasible(self, value: float, metrics: Mapping[str, float]) -> bool:
        """Return whether a result satisfies every constraint."""
        return all(margin >= 0.0 for margin in self.margins(value, metrics))

    def feasibility(self, value: float, metrics: Mapping[str, float]) -> bool | None:
        """Return whether a result satisfies every constraint; None without constraints."""
        return self.is_feasible(value, metrics) if self.constraints else None

    def _metric(self, name: str, value: float, metrics: Mapping[str, float]) -> float:
        return value if name == self.objectives[0].metric else metrics[name]
