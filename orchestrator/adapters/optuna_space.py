"""Converts Optuna's search spaces to spaces of this project.

Parameters are called p0, p1, … in the order of the distributions, and a categorical value is
represented by its index, because Optuna allows any names and any objects.
"""

from collections.abc import Mapping
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from objectives.conditions import Scalar
from objectives.parameters import Choice, Parameter, Range, Space

Values = dict[str, Any]  # Optuna's values: a choice may be any object


def space_of(distributions: Mapping[str, BaseDistribution]) -> Space:
    """Return the parameters by name; all `distributions` must have more than one value."""
    return {f"p{place}": _parameter(distribution) for place, distribution in enumerate(distributions.values())}


def to_ours(distributions: Mapping[str, BaseDistribution], values: Mapping[str, Any]) -> dict[str, Scalar]:
    """Convert Optuna's values to values of the space."""
    named = enumerate(distributions.items())
    return {f"p{place}": _ours(distribution, values[name]) for place, (name, distribution) in named}


def to_optuna(distributions: Mapping[str, BaseDistribution], values: Mapping[str, Any]) -> Values:
    """Convert values of the space to Optuna's."""
    named = enumerate(distributions.items())
    return {name: _optunas(distribution, values[f"p{place}"]) for place, (name, distribution) in named}


def _parameter(distribution: BaseDistribution) -> Parameter:
    match distribution:
        case CategoricalDistribution(choices=choices):
            return Choice(tuple(range(len(choices))))
        case IntDistribution(low=low, high=high, log=log, step=step):
            return Range(low, high, log=log, integer=True, step=None if step == 1 else step)
        case FloatDistribution(low=low, high=high, log=log, step=step):
            return Range(low, high, log=log, step=step)
    raise ValueError(f"BBKBSampler does not support {distribution}")


def _ours(distribution: BaseDistribution, value: Any) -> Scalar:
    return int(distribution.to_internal_repr(value)) if isinstance(distribution, CategoricalDistribution) else value


def _optunas(distribution: BaseDistribution, value: Scalar) -> object:
    return distribution.choices[value] if isinstance(distribution, CategoricalDistribution) else value
