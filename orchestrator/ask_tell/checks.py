"""Checks of the arguments of `Optimizer`: indices, rewards, values, limits, and parts such as a
kernel by name.

Every function raises ValueError with the rule, the value and the remedy.
"""

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from objectives.goals import as_section
from objectives.parameters import Parameter
from objectives.reference import did_you_mean
from orchestrator.bandit.options import excerpt
from orchestrator.bandit.strategy import Observation

T = TypeVar("T")
Rewards = Sequence[float | None] | ArrayLike


def check_limit(limit: object, what: str = "limit") -> int:
    """Check a number of pulls or candidates, at least 1. `what`: its name in messages."""
    if isinstance(limit, bool) or not isinstance(limit, int | np.integer):
        raise ValueError(f"{what} must be a whole number >= 1, got {excerpt(limit)}")
    number = int(limit)
    if number < 1:
        raise ValueError(f"{what} must be >= 1, got {number}")
    return number


def check_list(values: object, what: str, example: str) -> list[Any]:
    """Return `values` as a list. Texts, mappings and single values are rejected. `example`: an
    example in the message."""
    is_single = getattr(values, "ndim", 1) == 0  # NumPy's arrays of shape () have `__iter__`
    if is_single or isinstance(values, str | bytes | Mapping | Set) or not isinstance(values, Iterable):
        raise ValueError(f"{what} must be a list such as {example}, got {excerpt(values)}")
    return list(values)


def check_mapping(values: object, what: str, example: str) -> Mapping[str, Any]:
    """Return `values`, a mapping whose keys are texts. `example`: an example in the message."""
    if not isinstance(values, Mapping) or not all(isinstance(key, str) for key in values):
        raise ValueError(f"{what} must be a mapping such as {example}, got {excerpt(values)}")
    return values


def check_mappings(values: object, what: str, example: str) -> list[Mapping[str, Any]]:
    """Return `values`, a list of mappings whose keys are texts. `example`: an example in the
    message."""
    return [
        check_mapping(mapping, f"each of {what}", example.strip("[]")) for mapping in check_list(values, what, example)
    ]


def check_goals(goals: object, what: str, example: str) -> list[Mapping[str, Any]]:
    """Return the mappings of a campaign file for `goals`: `Objective`, `Constraint` or mappings.
    `example`: an example in the message."""
    return check_mappings([as_section(goal) for goal in check_list(goals, what, example)], what, example)


def check_objective(objective: object) -> None:
    """A function, or the section `objective` of a campaign file."""
    if callable(objective) or isinstance(objective, Mapping):
        return
    reference = objective if isinstance(objective, str) else "train:objective"
    remedy = f"a function of a module is named by {{'callable': {reference!r}}}"
    raise ValueError(f"objective must be a function or a mapping, got {excerpt(objective)}; {remedy}")


def check_space(space: object, for_a_table: str) -> Mapping[str, Parameter | Mapping[str, object]]:
    """Return `space`, parameters by name: objects, or mappings as in a campaign file.
    `for_a_table`: the remedy in the message if candidates are the rows of a table."""
    if not isinstance(space, Mapping):
        raise ValueError(
            f"space must be a mapping such as {{'x': Range(0, 1)}}, got {excerpt(space)}; for a table of candidates "
            f"{for_a_table}"
        )
    parameters = check_mapping(space, "space", "{'x': Range(0, 1)}")
    for name, parameter in parameters.items():
        if not isinstance(parameter, Mapping | Parameter):
            meant = ", such as Range(0, 1) or Choice([…])" if isinstance(parameter, list | tuple | range) else ""
            raise ValueError(
                f"space[{name!r}] must be Range, Choice, Ordered or a mapping{meant}, got {excerpt(parameter)}"
            )
    return parameters


def check_direction(direction: object, is_needed: bool = False) -> None:
    """Raise ValueError for a wrong direction, and for None if one `is_needed`."""
    if direction is None and is_needed:
        raise ValueError(
            'direction is missing: write direction="minimize" for a loss, direction="maximize" for an accuracy'
        )
    if direction not in ("minimize", "maximize", None):
        # imported here, because it loads pydantic and YAML
        from orchestrator.settings.mistakes import hint

        meant = hint(str(direction), ("minimize", "maximize"))
        raise ValueError(f'direction must be "minimize" or "maximize", got {excerpt(direction)}{meant}')


def check_seed(seed: object) -> int:
    """Return a seed, a whole number >= 0. Raises ValueError for anything else."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"seed must be a whole number >= 0, got {excerpt(seed)}")
    return int(seed)


def check_results(indices: ArrayLike, rewards: Rewards, size: int) -> list[Observation]:
    """Return observations of the candidates `indices` (n,) below `size`. A result of None is a
    failure."""
    arms, values = check_indices(indices, size), [_reward(value) for value in _list_rewards(rewards)]
    if len(values) != len(arms):
        raise ValueError(f"there must be one reward for each index, got {len(values)} rewards for {len(arms)} indices")
    return [Observation(arm, value) for arm, value in zip(arms, values, strict=True)]


def check_values(values: object, metric: str, count: int) -> list[float | None]:
    """Return the value of each of `count` results: finite numbers, mappings with the `metric`, or
    None for a failure. One result may be given without a list."""
    rows = [values] if isinstance(values, int | float | None) else check_list(values, "values", "[0.5, None]")
    if len(rows) != count:
        raise ValueError(f"there must be one value for each configuration, got {len(rows)} for {count}")
    return [_value(row, metric) for row in rows]


def _value(row: object, metric: str) -> float | None:
    if not isinstance(row, Mapping):
        return _number(row, "a value")
    if metric not in row:
        raise ValueError(f"a mapping of metrics must have {metric!r}, got {excerpt(dict(row))}; None for a failure")
    return _number(row[metric], f"the metric {metric}")


def check_metrics(values: object, names: Sequence[str], count: int) -> list[dict[str, float] | None]:
    """Return the metrics `names` (m,) of `count` results, which are mappings or rows. A result of
    None is a failure."""
    rows = check_list(values, "values", f"[{{{names[0]!r}: 0.5, …}}]")
    if len(rows) != count:
        raise ValueError(f"there must be one value for each configuration, got {len(rows)} for {count}")
    return [None if row is None else _metrics(row, names) for row in rows]


def _metrics(row: object, names: Sequence[str]) -> dict[str, float]:
    """Return a result's metrics: `names` of a mapping, or all numbers of a sequence."""
    numbers = [row.get(name) for name in names] if isinstance(row, Mapping) else list(np.atleast_1d(np.asarray(row)))
    if len(numbers) != len(names):
        raise ValueError(f"a result must have {len(names)} numbers, {', '.join(names)}, got {len(numbers)}")
    metrics = {}
    for name, number in zip(names, numbers, strict=True):
        value = _number(number, f"the metric {name}")
        if value is None:
            raise ValueError(f"the metric {name} must be a finite number, got None; None for a failed evaluation")
        metrics[name] = value
    return metrics


def check_numbers(values: ArrayLike, what: str) -> NDArray[np.float64]:
    """Return `values` (n,), or a single value, as floats. `what`: their name in messages."""
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "iufO":
            raise TypeError
        return array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{what} must be numbers (n,), got {excerpt(values)}") from None


def check_existing(existing: object, size: int) -> list[Observation]:
    """Return existing results: indices (n,) and rewards (n,), n ≥ 1, none of them failed."""
    if not isinstance(existing, tuple | list) or len(existing) != 2:
        shown = f"{len(existing)} items" if isinstance(existing, tuple | list) else f"a {type(existing).__name__}"
        raise ValueError(f"existing must be a pair (indices, rewards), got {shown}")
    indices, rewards = existing
    observations = check_results(indices, rewards, size)
    if not observations or any(result.reward is None for result in observations):
        rule = "existing results must be at least one, and each must have a reward"
        raise ValueError(f"{rule}; leave out what could not be evaluated, or all of `existing`")
    return [replace(result, is_existing=True) for result in observations]


def check_indices(indices: ArrayLike, size: int) -> list[int]:
    """Return indices (n,) of candidates, each at least 0 and below `size`."""
    array = np.atleast_1d(np.asarray(indices))
    if array.ndim != 1 or (array.size and not np.issubdtype(array.dtype, np.integer)):
        raise ValueError(f"indices must be integers (n,), got shape {array.shape} of {array.dtype}")
    for arm in array.tolist():
        if not 0 <= arm < size:
            raise ValueError(f"an index must be >= 0 and < {size}, the number of candidates; got {arm}")
    return [int(arm) for arm in array]


def build_part(table: Mapping[str, Callable[..., T]], choice: T | str | Mapping[str, object], part: str) -> T:
    """Return the kernel or warm start that `choice` stands for: a name, a mapping such as {"name":
    "rbf", "lengthscale": 0.5}, or the object itself."""
    if isinstance(choice, str):
        return look_up(table, choice, part)()
    if isinstance(choice, Mapping):
        options = dict(choice)
        cls = look_up(table, options.pop("name", None), f"{part}.name")
        return construct(cls, options, f"the {part} {choice['name']}")
    if choice is None or isinstance(choice, int | float | complex | bytes | Sequence | np.ndarray):
        names = ", ".join(table)
        rule = f'must be one of {names}, a mapping such as {{"name": "{next(iter(table))}"}}, or an object'
        raise ValueError(f"{part} {rule}, got {choice!r}")
    return choice


def look_up(table: Mapping[str, T], name: object, what: str) -> T:
    """Return the entry of `table` with this name. `what`: the kind of the entry, in messages."""
    if not isinstance(name, str) or name not in table:
        raise ValueError(f"{what} must be one of {', '.join(table)}, got {name!r}{did_you_mean(str(name), table)}")
    return table[name]


def construct(factory: Callable[..., T], options: Mapping[str, object], what: str) -> T:
    """Return `factory(**options)`. Raises ValueError for an option that `factory` does not have."""
    option_names = [name for name in inspect.signature(factory).parameters if name != "name"]
    for option in options:
        if option not in option_names:
            remedy = did_you_mean(str(option), option_names) or f"; it has {', '.join(option_names) or 'none'}"
            raise ValueError(f"{what} has no option {option!r}{remedy}")
    return factory(**options)


def _list_rewards(rewards: Rewards) -> list[object]:
    if isinstance(rewards, Mapping | str | bytes):
        raise ValueError(f"rewards must be numbers (n,) in the order of the indices, got a {type(rewards).__name__}")
    array = np.atleast_1d(np.asarray(rewards, object))
    if array.ndim != 1:
        raise ValueError(f"rewards must be (n,), one number for each index, got shape {array.shape}")
    return list(array)


def _reward(value: object) -> float | None:
    try:
        return _float(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"a reward must be a number, or None for a failed evaluation, got {excerpt(value)}") from None


def _number(value: object, what: str) -> float | None:
    """Return a finite number, or None. `what`: its name in messages."""
    try:
        number = _float(value)
        if number is None or math.isfinite(number):
            return number
    except (TypeError, ValueError, OverflowError):
        pass
    raise ValueError(f"{what} must be a finite number, got {excerpt(value)}; None for a failed evaluation")


def _float(value: Any) -> float | None:
    """Raise TypeError, ValueError or OverflowError unless it is None or fits into a float."""
    if value is None:
        return None
    if np.iscomplexobj(value) or isinstance(value, str | bytes) or np.ndim(value):
        raise TypeError
    return float(value)
