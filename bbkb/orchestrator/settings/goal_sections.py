"""The campaign file's sections `objectives` and `constraints`, and the sections that they
exclude."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, ValidationError, model_validator
from pydantic.config import JsonDict

from bbkb.orchestrator.bandit.strategies import STRATEGIES
from bbkb.orchestrator.bandit.strategies.presets import with_preset
from bbkb.orchestrator.bandit.strategy import Multiobjective
from bbkb.orchestrator.settings.file import Plain
from bbkb.orchestrator.settings.known_results import Known, has_values
from bbkb.orchestrator.settings.mistakes import Refusal, describe, failure
from bbkb.orchestrator.settings.objective_sections import CandidateSettings, ObjectiveSettings
from bbkb.orchestrator.settings.sections import BudgetSettings, Section

MetricName = Annotated[str, Field(min_length=1, max_length=100)]

_WITHOUT_DIRECTION = (
    "is required, because the objective is your own: write direction: minimize for a loss, direction: maximize for an "
    "accuracy"
)
_BOUNDS: JsonDict = {"anyOf": [{"required": ["at_most"]}, {"required": ["at_least"]}]}


class _Goal(Section):
    metric: MetricName
    """Name of the metric; `value` is the value that the objective returns."""


class ObjectiveMetricSettings(_Goal):
    """One of several objectives: a metric and its direction."""

    direction: Literal["maximize", "minimize"] = "maximize"
    """Whether high or low values are good."""
    reference: float | None = None
    """A barely unacceptable value: the reference of hypervolumes; null: the worst result."""


class ConstraintSettings(_Goal):
    """A bound on a metric."""

    model_config = ConfigDict(json_schema_extra=_BOUNDS)

    at_most: float | None = None
    """The largest value that is allowed."""
    at_least: float | None = None
    """The smallest value that is allowed."""

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        if self.at_most is None and self.at_least is None:
            raise failure([Refusal((), f"must have at_most or at_least beside metric: {self.metric}")])
        if self.at_most is not None and self.at_least is not None and self.at_least > self.at_most:
            raise failure([Refusal(("at_least",), f"must be <= at_most, {self.at_most:g}, got {self.at_least:g}")])
        return self


class _Goals(Section):
    objectives: tuple[ObjectiveMetricSettings, ...] = Field(default=(), strict=False)
    constraints: tuple[ConstraintSettings, ...] = Field(default=(), strict=False)


def check_goals(sections: Mapping[str, Sequence[Mapping[str, object]]], strategy: object) -> Plain:
    """Return the sections `objectives` and `constraints` as plain values, for Python callers.

    Raises:
        ValueError: with the first mistake.
    """
    try:
        goals = _Goals.model_validate(sections)
    except ValidationError as error:
        raise ValueError(str(describe(error, sections)[0])) from error
    for problem in goal_problems(goals.objectives, goals.constraints, strategy):
        raise ValueError(str(problem))
    return goals.model_dump()


def with_direction(tree: Any) -> Any:
    """Return the plain values; `objective.direction` is that of the first of `objectives`."""
    objectives = tree.get("objectives") if isinstance(tree, Mapping) else None
    first = objectives[0] if isinstance(objectives, list | tuple) and objectives else None
    objective = tree.get("objective", {}) if isinstance(tree, Mapping) else None
    if not isinstance(first, Mapping) or not isinstance(objective, Mapping) or "direction" in objective:
        return tree
    direction = "minimize" if first.get("direction") == "minimize" else "maximize"  # a wrong one is reported once
    return {**tree, "objective": {**objective, "direction": direction}}


def goal_problems(
    objectives: Sequence[ObjectiveMetricSettings],
    constraints: Sequence[ConstraintSettings],
    strategy: object,
) -> Iterator[Refusal]:
    """Yield conflicts between the goals, and a mistake if the strategy does not support them."""
    names = [objective.metric for objective in objectives]
    for number, name in enumerate(names):
        if name in names[:number]:
            rule = f"must differ from the earlier ones, got {name!r}"
            yield Refusal(("objectives", number, "metric"), rule)
    if _are_goals(objectives, constraints) and not _takes_goals(strategy):
        rule = "must be one of those that take several objectives and constraints"
        yield Refusal(("strategy",), f"{rule}: {' and '.join(_that_take_goals())}")


def direction_problems(
    objectives: Sequence[ObjectiveMetricSettings],
    objective: ObjectiveSettings,
    candidates: CandidateSettings,
) -> Iterator[Refusal]:
    """Yield a mistake if the direction contradicts the objectives or is unknown."""
    direction = objective.direction
    if objectives and direction != objectives[0].direction:
        rule = f"must be left out, or be that of the first of objectives, {objectives[0].direction}"
        yield Refusal(("objective", "direction"), rule, direction)
    count = len(objective.sources) + (candidates.target is not None)
    if count == 1 and not objective.has_direction:
        yield Refusal(("objective", "direction"), _WITHOUT_DIRECTION)


def excluded_problems(
    objectives: Sequence[ObjectiveMetricSettings],
    constraints: Sequence[ConstraintSettings],
    budget: BudgetSettings,
    known_results: Known,
) -> Iterator[Refusal]:
    """Yield the settings that several objectives or constraints exclude."""
    if not _are_goals(objectives, constraints):
        return
    rule = "must not be given beside several objectives or constraints"
    if budget.target is not None and len(objectives) > 1:
        yield Refusal(("budget", "target"), f"{rule}: no single value is good enough")
    if budget.stop_when is not None:
        yield Refusal(("budget", "stop_when"), f"{rule}: no single value shows a gain")
    if has_values(known_results):
        yield Refusal(("known_results",), f"{rule}: known results have one value each")


def _are_goals(objectives: Sequence[object], constraints: Sequence[object]) -> bool:
    """Return whether there is more than one objective without constraints."""
    return len(objectives) > 1 or bool(constraints)


def _takes_goals(strategy: object) -> bool:
    return isinstance(strategy, Multiobjective) and strategy.takes_goals


def _that_take_goals() -> list[str]:
    """Return the strategies that support goals with their default options."""
    defaults = {name: cls(**with_preset(cls, {})) for name, cls in STRATEGIES.items()}
    return [name for name, strategy in defaults.items() if _takes_goals(strategy)]
