"""Converts the argument `strategy` of `tune` into the section `strategy` of a campaign file."""

import sys
from collections.abc import Mapping
from pathlib import Path

from orchestrator.ask_tell.strategy import StrategyChoice
from orchestrator.bandit.checks import check_class
from orchestrator.bandit.strategies.presets import Calibrated
from orchestrator.settings.strategies import dump_strategy, strategy_name


def strategy_section(choice: StrategyChoice | Mapping[str, object]) -> Mapping[str, object]:
    """Convert a strategy to its mapping in a campaign file.

    Args:
        choice: a listed name, `module:Name`, a mapping with `name`, a class, or an object.

    Raises:
        ValueError: if `choice` is not a strategy, or is a class that other processes cannot import.
    """
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
