"""A strategy from its name, its class or an object, the arguments of `Optimizer`."""

from dataclasses import fields, is_dataclass
from typing import Any, TypeAlias

from bbkb.objectives.keywords import did_you_mean
from bbkb.objectives.objective import ObjectiveError
from bbkb.objectives.reference import import_reference
from bbkb.orchestrator.bandit.checks import check_class
from bbkb.orchestrator.bandit.options import excerpt
from bbkb.orchestrator.bandit.start.warm_start import with_known_results
from bbkb.orchestrator.bandit.strategies import STRATEGIES
from bbkb.orchestrator.bandit.strategies.presets import Calibrated, with_preset
from bbkb.orchestrator.bandit.strategy import AnyStrategy, PausesTrials

# a name, `module:Name`, a class of one's own, or an object of any strategy
StrategyChoice: TypeAlias = str | type[Any] | AnyStrategy | Calibrated[..., Any]


def named_strategy(choice: StrategyChoice, has_existing: bool = False) -> AnyStrategy:
    """Build a strategy.

    Args:
        choice: a listed name, `module:Name`, a class, or an object, which already has its options.
        has_existing: whether existing results replace the strategy's warm start.

    Raises:
        ValueError: if the choice is not allowed.
    """
    made: str | type[Any] | AnyStrategy = choice() if isinstance(choice, Calibrated) else choice
    cls: type[Any] = _strategy_class(made) if isinstance(made, str | type) else type(made)
    if not isinstance(made, str | type):
        return _without_pauses(_check_object(made))
    strategy: AnyStrategy = _without_pauses(cls(**with_preset(cls, {})))
    if has_existing and any(field.name == "warm_start" for field in fields(cls)):
        return with_known_results(strategy)
    return strategy


def _without_pauses(strategy: AnyStrategy) -> AnyStrategy:
    """Return the strategy. Raises ValueError if its trials start from others' checkpoints."""
    if isinstance(strategy, PausesTrials):
        name = STRATEGIES.name_of(type(strategy)) or type(strategy).__name__
        rule = f"the strategy {name} copies checkpoints, which only a campaign can do"
        raise ValueError(f"{rule}: use `tune` or `bbkb run`")
    return strategy


def _strategy_class(choice: str | type[Any]) -> type[Any]:
    """Return the class of a strategy: for a listed name, for `module:Name`, or the class itself.
    Raises ValueError for any other choice."""
    if isinstance(choice, type):
        return check_class(choice, f"the strategy {choice.__qualname__} ")
    if ":" not in choice and choice not in STRATEGIES:
        listed = ", ".join(STRATEGIES)
        raise ValueError(f"strategy must be one of {listed}, got {choice!r}{did_you_mean(choice, STRATEGIES)}")
    if ":" not in choice:
        return STRATEGIES[choice]
    try:
        return check_class(import_reference(choice), f"the strategy {choice} ")
    except ObjectiveError as error:
        raise ValueError(f"strategy {error}") from error


def _check_object(strategy: AnyStrategy) -> AnyStrategy:
    """Return an object that already is a strategy. Raises ValueError for anything else."""
    rule = "strategy must be a name, module:Name, a class, or an object with the methods of a strategy"
    plain: object = strategy
    if not is_dataclass(plain):
        raise ValueError(f"{rule}, got {excerpt(strategy)}")
    _strategy_class(type(strategy))
    return strategy
