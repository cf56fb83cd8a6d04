"""A strategy by its name and options, as callers of `Optimizer` give them."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from orchestrator.ask_tell.checks import build_part, construct, look_up
from orchestrator.bandit.kernels import KERNELS
from orchestrator.bandit.model.model import Model
from orchestrator.bandit.start.warm_start import WARM_STARTS, DataStart
from orchestrator.bandit.strategies import STRATEGIES
from orchestrator.bandit.strategies.presets import with_preset
from orchestrator.bandit.strategy import AnyStrategy

_PARTS: Mapping[str, Mapping[str, type[Any]]] = {"kernel": KERNELS, "warm_start": WARM_STARTS}


def named_strategy(name: str, given: Mapping[str, Any], has_existing: bool = False) -> AnyStrategy:
    """The strategy `name` with the options `given`, whose parts may be names, mappings or objects.

    `has_existing`: results known before take the place of its warm start. Raises ValueError on what is not allowed.
    """
    chosen, options = look_up(STRATEGIES, name, "strategy"), dict(given)
    for part in options.keys() & _PARTS:
        options[part] = build_part(_PARTS[part], options[part], part)
    if isinstance(options.get("model"), Mapping):
        options["model"] = _build_model(options["model"])
    options = with_preset(chosen, options)
    if isinstance(options.get("warm_start"), DataStart):
        raise ValueError("the warm start data is for campaign files, which are read; give existing=(indices, rewards)")
    if has_existing and any(field.name == "warm_start" for field in fields(chosen)):
        options["warm_start"] = DataStart("existing results")
    strategy: AnyStrategy = construct(chosen, options, f"the strategy {name}")
    return strategy


def _build_model(mapping: Mapping[str, object]) -> Model:
    """The model that a mapping such as {"outputs": "rank"} stands for."""
    options = dict(mapping)
    if "kernel" in options:
        options["kernel"] = build_part(KERNELS, options["kernel"], "model.kernel")
    model: Model = construct(Model, options, "the model")
    return model
