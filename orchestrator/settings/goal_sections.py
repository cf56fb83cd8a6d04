"""The campaign file's sections `objectives` and `constraints`, and the sections that they
exclude."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator
from pydantic.config import JsonDict

from orchestrator.bandit.strategies import STRATEGIES
from orchestrator.bandit.strategies.presets import with_preset
from orchestrator.bandit.strategy import Multiobjective
from orchestrator.settings.file import Plain
from orchestrator.settings.mistakes import Refusal, describe, failure

MetricName = Annotated[str, Field(min_length=1, max_length=100)]

_BOUNDS: JsonDict = {"anyOf": [{"required": ["at_most"]}, {"required": ["at_least"]}]}


class _Goal(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    metric: MetricName = Field(description="Name of the metric; value is what the objective returns as its value.")


class ObjectiveMetricSettings(_Goal):
    """One of several objectives: a metric and its direction."""

    direction: Literal["maximize", "minimize"] = Field(
        default="maximize", description="Whether high or low values are good."
    )
    reference: float | None = Field(
        default=None,
        description="A value just not good enough, which hypervolumes are measured from; else the worst result.",
    )


class ConstraintSettings(_Goal):
    """A bound on a metric."""

    model_config = ConfigDict(json_schema_extra=_BOUNDS)

    at_most: float | None = Field(default=None, description="The largest value that is allowed.")
    at_least: float | None = Field(default=None, description="The smallest value that is allowed.")

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        if self.at_most is None and self.at_least is None:
            raise failure([Refusal((), f"the constraint on {self.metric} must have at_most or at_least")])
        if self.at_most is not None and self.at_least is not None and self.at_least > self.at_most:
            raise failure([Refusal(("at_least",), f"must be <= at_most, {self.at_most:g}, got {self.at_least:g}")])
        return self


_OBJECTIVES = TypeAdapter(tuple[ObjectiveMetricSettings, ...])
_CONSTRAINTS = TypeAdapter(tuple[ConstraintSettings, ...])
G = TypeVar("G", bound=_Goal)


def check_goals(sections: Mapping[str, Sequence[Mapping[str, object]]], strategy: object) -> Plain:
    """Return the sections `objectives` and `constraints` of `given` as plain values, for a caller
    without a campaign file.

    Raises ValueError with the first mistake.
    """
    objectives = _check(_OBJECTIVES, sections, "objectives")
    constraints = _check(_CONSTRAINTS, sections, "constraints")
    direction = objectives[0].direction if objectives else ""
    if problems := goal_problems(objectives, constraints, direction, strategy, {}):
        raise ValueError(str(problems[0]))
    return {
        "objectives": [objective.model_dump() for objective in objectives],
        "constraints": [constraint.model_dump() for constraint in constraints],
    }


def _check(
    adapter: TypeAdapter[tuple[G, ...]], sections: Mapping[str, Sequence[Mapping[str, object]]], section: str
) -> tuple[G, ...]:
    values = tuple(sections.get(section, ()))
    try:
        return adapter.validate_python(values)
    except ValidationError as error:
        raise ValueError(str(describe(error, values)[0].below(section))) from error


def with_direction(tree: Any) -> Any:
    """Return the plain values with the first of `objectives`' direction as the objective's."""
    objectives = tree.get("objectives") if isinstance(tree, Mapping) else None
    first = objectives[0] if isinstance(objectives, list | tuple) and objectives else None
    objective = tree.get("objective", {}) if isinstance(tree, Mapping) else None
    if not isinstance(first, Mapping) or not isinstance(objective, Mapping) or "direction" in objective:
        return tree
    return {**tree, "objective": {**objective, "direction": first.get("direction", "maximize")}}


def goal_problems(
    objectives: Sequence[ObjectiveMetricSettings],
    constraints: Sequence[ConstraintSettings],
    direction: str,
    strategy: object,
    excluded: Mapping[tuple[str, ...], tuple[object, str]],
) -> list[Refusal]:
    """Return conflicts of the goals with the rest of the file. `direction`: the objective's.
    `excluded`: for each section that several objectives or constraints exclude, its value (None
    when it is not given), and the reason.
    """
    names = [objective.metric for objective in objectives]
    for number, name in enumerate(names):
        if name in names[:number]:
            return [Refusal(("objectives", number, "metric"), f"must be another one than before, got {name!r}")]
    if objectives and direction != objectives[0].direction:
        rule = f"must be left out, or be that of the first of objectives, {objectives[0].direction}"
        return [Refusal(("objective", "direction"), rule, direction)]
    if len(objectives) < 2 and not constraints:
        return []
    if not (isinstance(strategy, Multiobjective) and strategy.takes_goals):
        rule = "must be one of those that take several objectives and constraints"
        return [Refusal(("strategy",), f"{rule}: {' and '.join(_that_take_goals())}")]
    if len(objectives) < 2:
        excluded = {keys: entry for keys, entry in excluded.items() if keys != ("budget", "target")}
    return [
        Refusal(keys, f"must not be given beside several objectives or constraints: {why}")
        for keys, (value, why) in excluded.items()
        if value is not None
    ]


def _that_take_goals() -> list[str]:
    """Return the strategies that take goals with their default options."""
    by_name = {name: cls(**with_preset(cls, {})) for name, cls in STRATEGIES.items()}
    return [
        name
        for name, strategy_class in by_name.items()
        if isinstance(strategy_class, Multiobjective) and strategy_class.takes_goals
    ]
