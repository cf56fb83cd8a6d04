"""Checks the arguments that `tune`, `Campaign` and `Optimizer` have in common, before they become settings.

Every function raises ValueError with the rule, the value and the remedy.
"""

from collections.abc import Iterable, Mapping, Set
from typing import Any

from bbkb.objectives.errors import did_you_mean
from bbkb.objectives.parameters import Parameter
from bbkb.orchestrator.annotations import written
from bbkb.orchestrator.bandit.options import excerpt


def check_kind(value: object, kind: Any, rule: str) -> None:
    """Raise ValueError with `rule` unless `value` is an instance of `kind`."""
    if not isinstance(value, kind):
        raise ValueError(f"{rule}, got {excerpt(value)}")


def check_list(values: object, what: str, example: str) -> list[Any]:
    """Return `values` as a list. Strings, mappings and single values are rejected. `example`: an
    example in the message."""
    is_single = getattr(values, "ndim", 1) == 0  # 0-dimensional NumPy arrays have `__iter__`
    if is_single or isinstance(values, str | bytes | Mapping | Set) or not isinstance(values, Iterable):
        raise ValueError(f"{what} must be a list such as {example}, got {excerpt(values)}")
    return list(values)


def check_mapping(values: object, what: str, example: str) -> Mapping[str, Any]:
    """Return `values`, a mapping with string keys. `example`: an example in the message."""
    if not isinstance(values, Mapping) or not all(isinstance(key, str) for key in values):
        raise ValueError(f"{what} must be a mapping such as {example}, got {excerpt(values)}")
    return values


def check_mappings(values: object, what: str, example: str) -> list[Mapping[str, Any]]:
    """Return `values`, a list of mappings with string keys. `example`: an example in the
    message."""
    return [
        check_mapping(mapping, f"each of {what}", example.strip("[]")) for mapping in check_list(values, what, example)
    ]


def check_goals(goals: object, what: str, example: str) -> list[Mapping[str, Any]]:
    """Return the mappings of a campaign file for `goals`: `Objective`, `Constraint` or mappings.
    `example`: an example in the message."""
    return check_mappings([written(goal) for goal in check_list(goals, what, example)], what, example)


def check_objective(objective: object) -> None:
    """Check that `objective` is a function or the section `objective` of a campaign file."""
    if callable(objective) or isinstance(objective, Mapping):
        return
    reference = objective if isinstance(objective, str) else "train:objective"
    remedy = f"a function of a module is named by {{'callable': {reference!r}}}"
    raise ValueError(f"objective must be a function or a mapping, got {excerpt(objective)}; {remedy}")


def check_space(space: object, for_a_table: str) -> Mapping[str, Parameter | Mapping[str, object]]:
    """Return `space`, parameters by name: objects, or mappings as in a campaign file.
    `for_a_table`: the remedy in the message if the candidates are the rows of a table."""
    if not isinstance(space, Mapping):
        raise ValueError(
            f"space must be a mapping such as {{'x': Range(0, 1)}}, got {excerpt(space)}; for a table of candidates "
            f"{for_a_table}"
        )
    parameters = check_mapping(space, "space", "{'x': Range(0, 1)}")
    for name, parameter in parameters.items():
        if not isinstance(parameter, Mapping | Parameter):
            raise ValueError(
                f"space[{name!r}] must be Range, Choice, Ordered or a mapping, such as Range(0, 1) or "
                f"Choice([…]), got {excerpt(parameter)}"
            )
    return parameters


def check_direction(direction: object, is_needed: bool = False) -> None:
    """Raise ValueError for a wrong direction, and for None if a direction `is_needed`."""
    if direction is None and is_needed:
        raise ValueError(
            'direction is missing: write direction="minimize" for a loss, direction="maximize" for an accuracy'
        )
    if direction not in ("minimize", "maximize", None):
        meant = did_you_mean(str(direction), ("minimize", "maximize"))
        raise ValueError(f'direction must be "minimize" or "maximize", got {excerpt(direction)}{meant}')
