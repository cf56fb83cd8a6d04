"""The arguments of `Campaign` and `tune`: their types, and their keys in a campaign file."""

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from bbkb.objectives.parameters import Parameter
from bbkb.objectives.pickled import LiveFunction, draft_function
from bbkb.orchestrator.annotations import written
from bbkb.orchestrator.ask_tell.checks import (
    StrategyChoice,
    check_direction,
    check_goals,
    check_mapping,
    check_mappings,
    check_objective,
    check_space,
)
from bbkb.orchestrator.bandit.strategies.presets import Calibrated
from bbkb.orchestrator.bandit.strategy import check_class
from bbkb.orchestrator.campaign.goals import Constraint, Objective
from bbkb.orchestrator.campaign.settings import Settings, Workers, name_from
from bbkb.orchestrator.settings.loading import from_mapping
from bbkb.orchestrator.settings.options import dump_objective
from bbkb.orchestrator.settings.strategies import dump_strategy, strategy_name
from bbkb.orchestrator.store.runs import unwritable
from bbkb.workers.executor import TRAITS, ExecutorName

Function: TypeAlias = Callable[..., object]
Space: TypeAlias = Mapping[str, Parameter | Mapping[str, object]]
Strategy: TypeAlias = StrategyChoice | Mapping[str, object]
Objectives: TypeAlias = Sequence[Objective | Mapping[str, object]]
Constraints: TypeAlias = Sequence[Constraint | Mapping[str, object]]
KnownResults: TypeAlias = Sequence[Mapping[str, object]]
Executor: TypeAlias = ExecutorName
Concurrency: TypeAlias = int | Workers | Mapping[str, object]
EarlyStopping: TypeAlias = Literal["model", "median", "asha"] | Mapping[str, object]
FurtherSettings: TypeAlias = Mapping[str, object]


_KEYS = {  # arguments whose key is in a section of the campaign file, or has another name
    "evaluations": ("budget", "evaluations"),
    "steps": ("budget", "steps"),
    "hours": ("budget", "hours"),
    "direction": ("objective", "direction"),
    "executor": ("workers", "executor"),
    "workers": ("workers", "count"),
}


def _converted(name: str, value: Any) -> object:
    """Return an argument as in a campaign file; None if it is empty. Raises ValueError."""
    match name:
        case "space":
            return dict(check_space(value, "give {} and settings={'candidates': {'table': 'candidates.csv'}}"))
        case "direction":
            check_direction(value)
        case "objectives":
            return check_goals(value, name, "[Objective('accuracy')]") or None
        case "constraints":
            return check_goals(value, name, "[Constraint('memory_gb', at_most=4)]") or None
        case "known_results":
            return check_mappings(value, name, "[{'table': 'results.csv'}]") or None
        case "strategy":
            return _strategy(value)
        case "early_stopping" if isinstance(value, str):
            return {"rule": value}
    return value


def _strategy(choice: Strategy) -> Mapping[str, object]:
    """Return a listed name, `module:Name`, a mapping, a class or an object as a mapping with `name`.
    Raises ValueError if it is not a strategy."""
    if isinstance(choice, Calibrated):
        choice = choice()
    if isinstance(choice, Mapping):
        return choice
    if isinstance(choice, str):
        return {"name": choice}
    if isinstance(choice, type):
        return {"name": _reference(choice)}
    _reference(type(choice))
    return {**dump_strategy(choice), "name": _reference(type(choice))}


def _reference(cls: type) -> str:
    """Return the `module:Name` from which other processes can import a strategy's class. Raises
    ValueError if they cannot, or if `cls` is not a strategy."""
    check_class(cls, f"the strategy {cls.__qualname__} ")
    place = f"{cls.__module__}:{cls.__qualname__}"
    if "." in cls.__qualname__:
        raise ValueError(f"strategy must be a class of a module's top level, got {place}: move it there")
    if cls.__module__ != "__main__":
        return strategy_name(cls)
    file = getattr(sys.modules["__main__"], "__file__", None)
    if file is None:
        raise ValueError(
            f"strategy must be a class that workers can import, got {place}: write it into a file, such as mystrat.py, "
            f"and give strategy='mystrat:{cls.__name__}'"
        )
    return f"{Path(file).resolve()}:{cls.__name__}"


def settings_of(
    objective: Function | Mapping[str, object], settings: FurtherSettings | None = None, /, **arguments: object
) -> Settings:
    """Build the settings of a campaign from the arguments of `Campaign`. None is an omitted
    argument. Write the pickle of a function if the settings are correct.

    Raises:
        ValueError: if an argument has a wrong type or is given twice, or a direction is missing.
        ConfigError: if a setting is wrong.
        ObjectiveError: if the function cannot be pickled for the workers.
        RunError: if the pickle cannot be written into the folder `runs`.
    """
    check_objective(objective)
    tree = dict(check_mapping({} if settings is None else settings, "settings", "{'workers': {'retries': 0}}"))
    tree = {key: written(section) for key, section in tree.items()}
    check_mapping(tree.get("objective", {}), "settings['objective']", "{'deterministic': True}")
    for name, value in arguments.items():
        plain = value.item() if isinstance(value, np.generic) else written(value)
        if name == "workers" and isinstance(plain, Mapping):
            for key, setting in plain.items():
                _insert(tree, (name, key), setting, f"{name}.{key}")
        elif plain is not None and (converted := _converted(name, plain)) is not None:
            _insert(tree, _KEYS.get(name, (name,)), converted, name)
    tree.setdefault("name", _name_of(objective))
    if "budget" not in tree:
        raise ValueError("evaluations is missing: write evaluations=20, the number of trials")
    if isinstance(objective, Mapping):
        return from_mapping({**tree, "objective": {**objective, **tree.get("objective", {})}}, origin="Campaign")
    return _with_function(tree, objective)


def _insert(tree: dict[str, Any], keys: tuple[str, ...], value: object, argument: str) -> None:
    """Set a key of one or two parts in `tree`. Raises ValueError if `settings` also contains the
    key."""
    section = tree
    key = keys[-1]
    if len(keys) == 2:
        given = tree.get(keys[0], {})
        if not isinstance(given, Mapping):  # the check of all settings reports this mistake
            return
        section = tree[keys[0]] = dict(given)
    if key in section:
        raise ValueError(f"{argument} must be given once, as an argument or in settings; got both")
    section[key] = value


def _with_function(tree: dict[str, Any], function: Function) -> Settings:
    """Check the settings with `function` as the objective. Then write its pickle if workers in other
    processes need it."""
    objective = tree.get("objective", {})
    if "direction" not in objective:
        check_direction(None, is_needed="objectives" not in tree)
    workers = tree.get("workers")
    executor = workers.get("executor") if isinstance(workers, Mapping) else None
    if isinstance(executor, str) and executor in TRAITS and not TRAITS[executor].on_ray:
        live = LiveFunction.of(function)
        section = {**objective, "function": live.path, "options": dump_objective(live)}
        return from_mapping({**tree, "objective": section}, origin="Campaign")
    runs = Path.cwd() / Path(str(tree.get("runs", "runs"))).expanduser()
    draft = draft_function(function, runs / "functions")
    pickled = draft.options
    section = {**objective, "function": pickled.path, "options": dump_objective(pickled)}
    checked = from_mapping({**tree, "objective": section}, origin="Campaign")
    try:
        draft.write()
    except OSError as error:
        raise unwritable(checked.runs, error.strerror) from error
    return checked


def _name_of(objective: Function | Mapping[str, object]) -> str:
    """Return a valid name for a run's folder."""
    if isinstance(objective, Mapping):
        return "campaign"
    if isinstance(objective, functools.partial):
        return _name_of(objective.func)
    return name_from(getattr(objective, "__name__", type(objective).__name__))
