"""A strategy by its name or class and its options, as callers of `Optimizer` give them."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

from objectives.objective import ObjectiveError
from objectives.reference import import_reference
from orchestrator.ask_tell.checks import build_part, construct, look_up
from orchestrator.bandit.checks import check_class
from orchestrator.bandit.kernels import KERNELS
from orchestrator.bandit.model.model import Model
from orchestrator.bandit.options import excerpt
from orchestrator.bandit.start.warm_start import WARM_STARTS, DataStart
from orchestrator.bandit.strategies import STRATEGIES
from orchestrator.bandit.strategies.presets import Calibrated, with_preset
from orchestrator.bandit.strategy import AnyStrategy

_PARTS: Mapping[str, Mapping[str, type[Any]]] = {"kernel": KERNELS, "warm_start": WARM_STARTS}


# a name, `module:Name`, a class of one's own, or an object of any strategy
StrategyChoice: TypeAlias = str | type[Any] | AnyStrategy | Calibrated[..., Any]


def named_strategy(
    choice: StrategyChoice, arguments: Mapping[str, Any] = MappingProxyType({}), has_existing: bool = False
) -> AnyStrategy:
    """Build the strategy with the options `arguments`, whose parts may be names, mappings or objects.

    `choice`: a listed name, `module:Name`, a class, or an object, which has its options already.
    `has_existing`: results known before take the place of its warm start. Raises ValueError on what
    is not allowed.
    """
    if isinstance(choice, Calibrated):
        made: AnyStrategy = choice()
        return _check_object(made, arguments)
    if not isinstance(choice, str | type):
        return _check_object(choice, arguments)
    cls, options = _strategy_class(choice), dict(arguments)
    for part in options.keys() & _PARTS:
        options[part] = build_part(_PARTS[part], options[part], part)
    if isinstance(options.get("model"), Mapping):
        options["model"] = _build_model(options["model"])
    options = with_preset(cls, options)
    if isinstance(options.get("warm_start"), DataStart):
        raise ValueError("the warm start data is for campaign files, which are read; give existing=(indices, rewards)")
    if has_existing and any(field.name == "warm_start" for field in fields(cls)):
        options["warm_start"] = DataStart("existing results")
    strategy: AnyStrategy = construct(
        cls, options, f"the strategy {choice if isinstance(choice, str) else cls.__qualname__}"
    )
    return strategy


def _strategy_class(choice: str | type[Any]) -> type[Any]:
    """Find the class of a strategy: a listed name, `module:Name`, or the class itself. Raises
    ValueError when there is none."""
    if isinstance(choice, str) and ":" not in choice:
        return look_up(STRATEGIES, choice, "strategy")
    if isinstance(choice, type):
        return check_class(choice, f"the strategy {choice.__qualname__} ")
    try:
        return check_class(import_reference(choice), f"the strategy {choice} ")
    except ObjectiveError as error:
        raise ValueError(f"strategy {error}") from error


def _check_object(strategy: AnyStrategy, options: Mapping[str, Any]) -> AnyStrategy:
    """Check an object that is a strategy already, and so takes no options."""
    rule = "strategy must be a name, module:Name, a class, or an object with the methods of a strategy"
    plain: object = strategy
    if not is_dataclass(plain):
        raise ValueError(f"{rule}, got {excerpt(strategy)}")
    _strategy_class(type(strategy))
    if options:
        raise ValueError(f"options must be in the strategy's object, got {', '.join(options)} beside it")
    return strategy


def _build_model(mapping: Mapping[str, object]) -> Model:
    """Return the model that a mapping such as {"outputs": "rank"} stands for."""
    options = dict(mapping)
    if "kernel" in options:
        options["kernel"] = build_part(KERNELS, options["kernel"], "model.kernel")
    model: Model = construct(Model, options, "the model")
    return model
