"""Parameters for optimisers that take a ConfigSpace. Ordered ones become integers, the index of
their value."""

from typing import Any

from ConfigSpace import CategoricalHyperparameter, Float, Integer

from objectives.conditions import Scalar
from objectives.parameters import Choice, Ordered, Parameter, Range
from orchestrator.errors import UserError


def hyperparameter(name: str, parameter: Parameter) -> Any:
    """The hyper-parameter of ConfigSpace for `parameter`. Raises UserError when there is none."""
    match parameter:
        case Range(low=low, high=high, log=log, integer=False):
            return Float(name, (low, high), log=log)
        case Range(low=low, high=high, log=log, integer=True, step=None):
            return Integer(name, (int(low), int(high)), log=log)
        case Ordered(ordered=levels):
            return Integer(name, (0, len(levels) - 1))
        case Choice(choices=levels):
            return CategoricalHyperparameter(name, levels)
    raise UserError(f"the benchmark's ConfigSpace methods have no hyper-parameter for {parameter}")


def value_of(parameter: Parameter, value: Any) -> Scalar:
    """The parameter's value for ConfigSpace's `value`."""
    if isinstance(parameter, Ordered):
        return parameter.ordered[int(value)]
    if isinstance(parameter, Range):
        return int(value) if parameter.integer else float(value)
    return str(value)
