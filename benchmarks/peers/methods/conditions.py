"""Conditional parameters for methods that draw a configuration one parameter after the other.

The spaces of `benchmarks.peers.rbv2` list a parameter after the one that it depends on,
and a condition names values.
"""

from collections.abc import Mapping

from objectives.conditions import Scalar
from objectives.parameters import Parameter, Space, conditions
from orchestrator.errors import CampaignError


def exists(parameter: Parameter, values: Mapping[str, Scalar]) -> bool:
    """Whether `parameter` exists beside the parameters that were `values` before it."""
    clauses = conditions(parameter)
    return not clauses or any(
        all(name in values and values[name] in _values(test) for name, test in clause.items()) for clause in clauses
    )


def existing(space: Space, values: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """The values of `values` whose parameters exist."""
    active: dict[str, Scalar] = {}
    for name, parameter in space.items():
        if exists(parameter, active):
            active[name] = values[name]
    return active


def _values(test: object) -> tuple[Scalar, ...]:
    if not isinstance(test, tuple):
        raise CampaignError(f"the benchmark's methods have no condition such as {test}, only lists of values")
    return test
