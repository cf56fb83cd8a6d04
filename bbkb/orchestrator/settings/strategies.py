"""The strategy that a campaign file names, with its options. It is separate from `options`, so that
readers of a log do not import any strategy.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from bbkb.objectives.errors import suggestion
from bbkb.objectives.objective import ObjectiveError
from bbkb.objectives.reference import import_reference
from bbkb.orchestrator.bandit.strategies import STRATEGIES
from bbkb.orchestrator.bandit.strategies.presets import Calibrated, Preset, broken_conditions, with_preset
from bbkb.orchestrator.bandit.strategy import CAMPAIGN_METHODS, AnyStrategy, check_class, never_waits
from bbkb.orchestrator.campaign.settings import DEFAULT_STRATEGY
from bbkb.orchestrator.settings.mistakes import Refusal, RefusalError, excerpt
from bbkb.orchestrator.settings.options import as_mapping, build, dump
from bbkb.orchestrator.yaml_file import Plain

# methods that are unavailable as strategies, or have a different name → the remedy
_ELSEWHERE = {
    "tpe": "write {name: optuna, sampler: TPESampler}",
    **dict.fromkeys(("cmaes", "cma-es"), "write {name: optuna, sampler: CmaEsSampler}"),
    **dict.fromkeys(("nsga2", "nsgaii"), "write {name: optuna, sampler: NSGAIISampler}"),
    **dict.fromkeys(("random", "randomsearch", "random_search"), "write uniform"),
    **dict.fromkeys(("asha", "hyperband", "bohb"), "write early_stopping: {rule: asha} beside any strategy"),
}


def build_strategy(options: object, evaluations: int | None = None) -> AnyStrategy:
    """Return the strategy that `options` specifies, with its fields. Raises RefusalError.

    `evaluations`: the budget, which a condition of `preset: theory` may need; None if unknown.
    """
    fields = as_mapping({"name": options} if isinstance(options, str) else options, "{name: bbkb, …}")
    cls = _strategy_class(fields.pop("name", DEFAULT_STRATEGY))
    preset = fields.get("preset")
    try:
        fields = with_preset(cls, fields)
    except ValueError as error:
        raise RefusalError([Refusal(("preset",), str(error).removeprefix("strategy.preset "))]) from error
    strategy: AnyStrategy = build(cls, fields)
    if preset == Preset.THEORY and (broken := broken_conditions(strategy, evaluations)):
        raise RefusalError([Refusal((option,), f"{rule} (preset: theory)", value) for option, rule, value in broken])
    mode = getattr(strategy, "mode", None)
    if STRATEGIES.name_of(cls) is None and never_waits(strategy) and mode != "async":
        # a campaign would request all trials from it at once
        rule = 'must have a field mode, "async", because its never_waits is true'
        raise RefusalError([Refusal(("name",), rule, f"mode {excerpt(mode)}")])
    return strategy


def own_strategy(name: str) -> type:
    """Import the class of a user's strategy from `module:Name`. The method `posterior` is optional.

    Raises ValueError, with a message that continues the name, if the class cannot be imported or is
    not a strategy.
    """
    try:
        return check_class(import_reference(name), methods=CAMPAIGN_METHODS)
    except ObjectiveError as error:
        raise ValueError(f"cannot be imported: {str(error).removeprefix(f'{name!r}: ')}") from error


def _name_of(cls: type) -> str:
    return STRATEGIES.name_of(cls) or f"{cls.__module__}:{cls.__qualname__}"


def dump_strategy(strategy: object) -> Plain:
    """Return the mapping that `build_strategy` converts to `strategy`."""
    return {"name": _name_of(type(strategy)), **dump(strategy)}


def strategy_section(choice: object) -> Mapping[str, object]:
    """Return the section `strategy` for a name, a mapping, a class or an object. Raises ValueError if it is
    not a strategy, or other processes cannot import its class."""
    if isinstance(choice, Calibrated):
        choice = choice()
    if isinstance(choice, Mapping):
        return choice
    if isinstance(choice, str):
        return {"name": choice}
    cls = choice if isinstance(choice, type) else type(choice)
    check_class(cls, f"the strategy {cls.__qualname__} ")
    name = _name_of(cls)
    if "." in cls.__qualname__:
        raise ValueError(f"strategy must be a class of a module's top level, got {name}: move it there")
    if cls.__module__ == "__main__":
        file = getattr(sys.modules["__main__"], "__file__", None)
        if file is None:
            raise ValueError(
                f"strategy must be a class that workers can import, got {name}: write it into a file, such as "
                f"mystrat.py, and give strategy='mystrat:{cls.__name__}'"
            )
        name = f"{Path(file).resolve()}:{cls.__name__}"
    return {"name": name} if choice is cls else {**dump(choice), "name": name}


def _strategy_class(name: object) -> type:
    if isinstance(name, str) and name in STRATEGIES:
        return STRATEGIES[name]
    if not isinstance(name, str) or ":" not in name:
        rule = f"must be a listed strategy or package.module:Name, got {excerpt(name)}"
        hint = _ELSEWHERE.get(str(name).lower()) or suggestion(str(name), list(STRATEGIES))
        raise RefusalError([Refusal(("name",), f"{rule}; {hint}")])
    try:
        return own_strategy(name)
    except ValueError as error:
        raise RefusalError([Refusal(("name",), str(error))]) from error
