"""`Objective` and `Constraint`: the goals of a search in Python."""

from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from bbkb.objectives.keywords import checks_arguments

Direction: TypeAlias = Literal["minimize", "maximize"]


@checks_arguments
@dataclass(frozen=True, slots=True)
class Objective:
    """One of several objectives: a metric and its direction.

    Args:
        metric: the name of the metric in the mapping that the function returns.
        direction: "maximize" or "minimize" the metric.
        reference: a value that is barely acceptable, from which hypervolumes are measured; None:
            the worst result.
    """

    metric: str
    direction: Direction = "maximize"
    reference: float | None = None


@checks_arguments
@dataclass(frozen=True, slots=True)
class Constraint:
    """A bound on a metric that the best results must satisfy. Give one bound or both.

    Args:
        metric: the name of the metric in the mapping that the function returns.
        at_most: the largest value allowed.
        at_least: the smallest value allowed.
    """

    metric: str
    at_most: float | None = None
    at_least: float | None = None


def as_section(goal: object) -> Any:
    """Convert an `Objective` or a `Constraint` to its mapping in a campaign file; other values are
    returned unchanged."""
    if not isinstance(goal, Objective | Constraint):
        return goal
    return {key: value for key, value in asdict(goal).items() if value is not None}
