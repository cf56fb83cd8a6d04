"""The goals of a campaign: one or more objectives, each of them a metric with a direction, and
constraints on metrics. They are sections of a campaign file, and arguments in Python.

`value` is the metric name of the objective's return value. The recorded value of a result is always
the metric of the first objective.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from annotated_types import MaxLen, MinLen
from typing_extensions import Doc

from bbkb.objectives.errors import checks_arguments
from bbkb.orchestrator.annotations import Section
from bbkb.orchestrator.bandit.goals import Goals

Direction: TypeAlias = Literal["minimize", "maximize"]
VALUE = "value"  # the metric that an objective returns as its value
MetricName = Annotated[
    str, MinLen(1), MaxLen(100), Doc("Name of the metric; `value` is the value that the objective returns.")
]


@checks_arguments
@dataclass(frozen=True)
class Objective(Section):
    """One of several objectives: a metric and its direction.

    Args:
        metric: the name of the metric in the mapping that the function returns.
        direction: "maximize" or "minimize" the metric.
        reference: a value that is barely acceptable, from which hypervolumes are measured; None:
            the worst result.
    """

    metric: MetricName
    direction: Annotated[Direction, Doc("Whether high or low values are good.")] = "maximize"
    reference: Annotated[
        float | None, Doc("A barely unacceptable value: the reference of hypervolumes; null: the worst result.")
    ] = None

    @property
    def is_maximized(self) -> bool:
        """Whether high values are good."""
        return self.direction == "maximize"

    def reward(self, value: float) -> float:
        """Return a value as a reward, which is maximized.

        Args:
            value: a value of the metric.
        """
        return value if self.is_maximized else -value

    def value(self, reward: float) -> float:
        """Return the value of a reward; 0 instead of −0.

        Args:
            reward: a value, negated if it is minimized.
        """
        return 0.0 + (reward if self.is_maximized else -reward)

    def __str__(self) -> str:
        return f"{self.metric} {self.direction}d"


@checks_arguments
@dataclass(frozen=True)
class Constraint(Section):
    """A bound on a metric that the best results must satisfy. Give one bound or both.

    Args:
        metric: the name of the metric in the mapping that the function returns.
        at_most: the largest value allowed.
        at_least: the smallest value allowed.
    """

    metric: MetricName
    at_most: Annotated[float | None, Doc("The largest value that is allowed.")] = None
    at_least: Annotated[float | None, Doc("The smallest value that is allowed.")] = None

    def __post_init__(self) -> None:
        if self.at_most is None and self.at_least is None:
            raise ValueError(f"must have at_most or at_least beside metric: {self.metric}")
        if self.at_most is not None and self.at_least is not None and self.at_least > self.at_most:
            raise ValueError(f"at_least must be <= at_most, {self.at_most:g}, got {self.at_least:g}")

    def margin(self, value: float) -> float:
        """Return the margin of `value` inside the constraint: at least 0 if the constraint holds.

        Args:
            value: a value of the metric.
        """
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

    objectives: tuple[Objective, ...] = (Objective(VALUE),)
    constraints: tuple[Constraint, ...] = ()

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
