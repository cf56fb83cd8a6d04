"""Checks the arguments of `Optimizer` and `CandidateOptimizer` that no campaign has: strategies, indices, rewards
and values.

Every function raises ValueError with the rule, the value and the remedy.
"""

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bbkb.objectives.errors import did_you_mean
from bbkb.objectives.objective import ObjectiveError
from bbkb.objectives.reference import import_reference
from bbkb.orchestrator.ask_tell.search import ArmResult
from bbkb.orchestrator.bandit.options import excerpt
from bbkb.orchestrator.bandit.start.warm_start import with_known_results
from bbkb.orchestrator.bandit.strategies import STRATEGIES
from bbkb.orchestrator.bandit.strategies.presets import Calibrated, StrategyChoice, with_preset
from bbkb.orchestrator.bandit.strategy import AnyStrategy, PausesTrials, check_class
from bbkb.orchestrator.settings.arguments import check_list


def named_strategy(choice: StrategyChoice, has_existing: bool = False) -> AnyStrategy:
    """Build a strategy.

    Args:
        choice: a listed name, `module:Name`, a class, or an object, which already has its options.
        has_existing: whether existing results replace the strategy's warm start.

    Raises:
        ValueError: if the choice is not allowed.
    """
    made: str | type[Any] | AnyStrategy = choice() if isinstance(choice, Calibrated) else choice
    cls: Any
    if isinstance(made, str):
        if ":" in made:
            try:
                cls = check_class(import_reference(made), f"the strategy {made} ")
            except ObjectiveError as error:
                raise ValueError(f"strategy {error}") from error
        elif made in STRATEGIES:
            cls = STRATEGIES[made]
        else:
            listed = ", ".join(STRATEGIES)
            raise ValueError(f"strategy must be one of {listed}, got {made!r}{did_you_mean(made, STRATEGIES)}")
    else:
        cls = made if isinstance(made, type) else type(made)
        if made is not cls and not is_dataclass(made):
            rule = "strategy must be a name, module:Name, a class, or an object with the methods of a strategy"
            raise ValueError(f"{rule}, got {excerpt(made)}")
        check_class(cls, f"the strategy {cls.__qualname__} ")
    strategy: AnyStrategy = cls(**with_preset(cls, {})) if isinstance(made, str | type) else made
    if isinstance(strategy, PausesTrials):
        name = STRATEGIES.name_of(cls) or cls.__name__
        rule = f"the strategy {name} copies checkpoints, which only a campaign can do"
        raise ValueError(f"{rule}: use `tune` or `bbkb run`")
    if has_existing and isinstance(made, str | type) and "warm_start" in (field.name for field in fields(cls)):
        return with_known_results(strategy)
    return strategy


def check_limit(limit: object, what: str = "limit") -> int:
    """Check a number of pulls or candidates, which must be at least 1. Messages call it `what`."""
    if isinstance(limit, bool) or not isinstance(limit, int | np.integer):
        raise ValueError(f"{what} must be a whole number >= 1, got {excerpt(limit)}")
    number = int(limit)
    if number < 1:
        raise ValueError(f"{what} must be >= 1, got {number}")
    return number


def check_seed(seed: object) -> int:
    """Return a seed, a whole number >= 0. Raises ValueError for anything else."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"seed must be a whole number >= 0, got {excerpt(seed)}")
    return int(seed)


def check_results(indices: ArrayLike, rewards: ArrayLike, size: int) -> list[ArmResult]:
    """Return results of the candidates `indices` (n,) below `size`."""
    arms = check_indices(indices, size)
    if isinstance(rewards, Mapping | str | bytes):
        raise ValueError(f"rewards must be numbers (n,) in the order of the indices, got a {type(rewards).__name__}")
    array = np.atleast_1d(np.asarray(rewards, object))
    if array.ndim != 1:
        raise ValueError(f"rewards must be (n,), one number for each index, got shape {array.shape}")
    if len(array) != len(arms):
        raise ValueError(f"there must be one reward for each index, got {len(array)} rewards for {len(arms)} indices")
    return [ArmResult(arm, _number(value, "a reward")) for arm, value in zip(arms, array, strict=True)]


def check_metrics(values: object, names: Sequence[str], count: int) -> list[dict[str, float]]:
    """Return the metrics `names` (m,) of `count` results, which are mappings or rows; with one
    name, also numbers. A single number need not be in a list."""
    is_number = len(names) == 1 and isinstance(values, int | float | None)
    rows = [values] if is_number else check_list(values, "values", f"[{{{names[0]!r}: 0.5}}]")
    if len(rows) != count:
        raise ValueError(f"there must be one value for each configuration, got {len(rows)} for {count}")
    return [_metrics(row, names) for row in rows]


def _metrics(row: object, names: Sequence[str]) -> dict[str, float]:
    """Return a result's metrics: `names` of a mapping, or all numbers of a sequence."""
    if isinstance(row, Mapping):
        return {name: _number(row.get(name), f"the metric {name}") for name in names}
    if len(names) == 1:
        return {names[0]: _number(row, "a value")}
    numbers = list(np.atleast_1d(np.asarray(row)))
    if len(numbers) != len(names):
        raise ValueError(f"a result must have {len(names)} numbers, {', '.join(names)}, got {len(numbers)}")
    return {name: _number(number, f"the metric {name}") for name, number in zip(names, numbers, strict=True)}


def check_deviations(deviations: ArrayLike, count: int) -> list[float]:
    """Return the deviations of `count` values, each >= 0. A single one need not be in a list."""
    array = np.atleast_1d(check_numbers(deviations, "deviation"))
    if array.shape != (count,):
        got = len(array) if array.ndim == 1 else f"an array of shape {array.shape}"
        raise ValueError(f"there must be one deviation for each value, got {got} for {count}")
    numbers: list[float] = array.tolist()
    for number in numbers:
        if not 0.0 <= number < math.inf:
            raise ValueError(f"a deviation must be a finite number >= 0, got {number}")
    return numbers


def check_numbers(values: ArrayLike, what: str) -> NDArray[np.float64]:
    """Return `values` (n,), or a single value, as floats. Messages call them `what`."""
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "iufO":
            raise TypeError
        return array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{what} must be numbers (n,), got {excerpt(values)}") from None


def check_report(value: object, names: Sequence[str]) -> tuple[float, Mapping[str, float]]:
    """Return the value of a report and its further metrics among `names`; the first one is that of
    the value. A number is the value alone."""
    if not isinstance(value, Mapping):
        return float(check_numbers(value, "value").reshape(())), {}  # type: ignore[arg-type]
    if names[0] not in value:
        raise ValueError(f"a report must have the metric {names[0]}, got {excerpt(value)}")
    numbers = {name: float(check_numbers(value[name], name).reshape(())) for name in names if name in value}
    return numbers.pop(names[0]), numbers


def check_existing(existing: object, size: int) -> list[ArmResult]:
    """Return existing results: indices (n,) and rewards (n,), n ≥ 1, without failures."""
    if not isinstance(existing, tuple | list) or len(existing) != 2:
        shown = f"{len(existing)} items" if isinstance(existing, tuple | list) else f"a {type(existing).__name__}"
        raise ValueError(f"existing must be a pair (indices, rewards), got {shown}")
    indices, rewards = existing
    results = check_results(indices, rewards, size)
    if not results:
        raise ValueError("existing results must be at least one; otherwise leave out `existing`")
    return results


def check_indices(indices: ArrayLike, size: int) -> list[int]:
    """Return indices (n,) of candidates, each at least 0 and below `size`."""
    array = np.atleast_1d(np.asarray(indices))
    if array.ndim != 1 or (array.size and not np.issubdtype(array.dtype, np.integer)):
        raise ValueError(f"indices must be integers (n,), got shape {array.shape} of {array.dtype}")
    for arm in array.tolist():
        if not 0 <= arm < size:
            raise ValueError(f"an index must be >= 0 and < {size}, the number of candidates; got {arm}")
    return [int(arm) for arm in array]


def _number(value: Any, what: str) -> float:
    """Return a finite number. Messages call it `what`."""
    if not (np.iscomplexobj(value) or isinstance(value, str | bytes) or np.ndim(value)):
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            if math.isfinite(number := float(value)):
                return number
    raise ValueError(f"{what} must be a finite number, got {excerpt(value)}; call fail for a failed evaluation")
