"""Search spaces written by ConfigSpace as JSON or YAML, converted to the form of campaign files.

Conditions become `when`, and forbidden clauses become `forbid` (`bbkb.objectives.parameters`). A
hyperparameter with a normal or beta distribution becomes a range with its bounds and a uniform
distribution. Default values are ignored.
"""

import json
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import ConfigSpace
import yaml
from ConfigSpace.conditions import Condition, Conjunction
from ConfigSpace.forbidden import ForbiddenClause, ForbiddenConjunction, ForbiddenRelation
from ConfigSpace.hyperparameters import FloatHyperparameter, Hyperparameter, IntegerHyperparameter

from bbkb.objectives.objective import ObjectiveError

Plain = dict[str, object]  # YAML values
AnyHyperparameter = Hyperparameter[Any, Any]


class _SpaceLoader(yaml.SafeLoader):
    """The safe loader, which also reads the tuples that ConfigSpace writes."""

    yaml_constructors: ClassVar[dict[str | None, Any]] = {
        **yaml.SafeLoader.yaml_constructors,
        "tag:yaml.org,2002:python/tuple": yaml.SafeLoader.construct_yaml_seq,
    }


ENDINGS = (".json", ".yaml", ".yml")

# the part of a class's name that says how the class compares; the first part that occurs applies
_OPERATORS = {
    "GreaterThanEquals": "at_least",
    "LessThanEquals": "at_most",
    "GreaterThan": "above",
    "LessThan": "below",
    "Equals": "equals",
}


def read_configspace(path: Path) -> tuple[dict[str, Plain], list[Plain]]:
    """Return the sections `space` and `forbid` of a campaign file from a ConfigSpace file.

    Raises ObjectiveError if it cannot be read, is not a ConfigSpace file, or contains an element
    without a counterpart in campaign files.
    """
    if path.suffix not in ENDINGS:
        raise ObjectiveError(f"must name a ConfigSpace file ({', '.join(ENDINGS)}), got {str(path)!r}")
    try:
        text = path.read_text(encoding="utf-8")
        tree = json.loads(text) if path.suffix == ".json" else yaml.load(text, _SpaceLoader)
    except (OSError, UnicodeDecodeError, ValueError, yaml.YAMLError) as error:
        raise ObjectiveError(f"{path} cannot be read as a ConfigSpace file: {error}") from error
    if not isinstance(tree, dict) or "hyperparameters" not in tree:
        raise ObjectiveError(
            f"{path} must be a ConfigSpace file with a list of hyperparameters; write one with to_json"
        )
    try:
        space = ConfigSpace.ConfigurationSpace.from_serialized_dict(tree)
    except Exception as error:  # ConfigSpace raises many types of its own
        raise ObjectiveError(f"{path} is not a valid ConfigSpace file: {type(error).__name__}: {error}") from error
    return plain(space)


def plain(space: ConfigSpace.ConfigurationSpace) -> tuple[dict[str, Plain], list[Plain]]:
    """Return `space` and `forbid` of a campaign file. Raises ObjectiveError for anything else."""
    parameters = {name: _parameter(parameter) for name, parameter in space.items()}
    for condition in space.conditions:
        child = condition.child
        parameters[child.name]["when"] = _any_of(condition)
    forbid = [clause for forbidden in space.forbidden_clauses for clause in _forbidden(forbidden)]
    return parameters, forbid


def _parameter(parameter: AnyHyperparameter) -> Plain:
    match parameter:
        case ConfigSpace.CategoricalHyperparameter():
            weights = [float(weight) for weight in parameter.weights or ()]
            return {"choices": _levels(parameter), **({"weights": weights} if len(set(weights)) > 1 else {})}
        case ConfigSpace.OrdinalHyperparameter():
            return {"ordered": _levels(parameter)}
        case ConfigSpace.Constant():
            return {"constant": _scalar(parameter.value)}
        case FloatHyperparameter() | IntegerHyperparameter():
            bounds = {"low": _scalar(parameter.lower), "high": _scalar(parameter.upper), "log": bool(parameter.log)}
            return {**bounds, "integer": isinstance(parameter, IntegerHyperparameter)}
    raise ObjectiveError(f"hyperparameter {parameter.name!r} is a {type(parameter).__name__}, which is not supported")


def _any_of(condition: Condition | Conjunction) -> list[Plain]:
    if isinstance(condition, ConfigSpace.OrConjunction):
        return [clause for part in condition.components for clause in _any_of(part)]
    if isinstance(condition, ConfigSpace.AndConjunction):
        return _all_of(_any_of(part) for part in condition.components)
    if isinstance(condition, Conjunction):
        raise ObjectiveError(f"a {type(condition).__name__} of conditions is not supported")
    return [{condition.parent.name: _test(condition, condition.parent)}]


def _test(compared: Condition | ForbiddenClause, parameter: AnyHyperparameter) -> Plain | list[object]:
    """Return the test that a condition or a forbidden clause applies to a parameter."""
    match compared:
        case ConfigSpace.InCondition() | ConfigSpace.ForbiddenInClause():
            return [_scalar(value) for value in compared.values]
        case ConfigSpace.EqualsCondition() | ConfigSpace.ForbiddenEqualsClause():
            return [_scalar(compared.value)]
        case ConfigSpace.NotEqualsCondition():
            return [value for value in _levels(parameter) if value != compared.value]
    operator, bound = _operator(compared), getattr(compared, "value", None)
    if not isinstance(parameter, ConfigSpace.OrdinalHyperparameter):
        return {operator: _scalar(bound)}
    levels = _levels(parameter)  # those that satisfy the comparison
    index = levels.index(_scalar(bound))
    sliced = {
        "above": slice(index + 1, None),
        "at_least": slice(index, None),
        "below": slice(index),
        "at_most": slice(index + 1),
    }
    return levels[sliced[operator]]


def _forbidden(forbidden: ForbiddenClause | ForbiddenConjunction | ForbiddenRelation) -> list[Plain]:
    match forbidden:
        case ConfigSpace.ForbiddenOrConjunction():
            return [clause for part in forbidden.components for clause in _forbidden(part)]
        case ConfigSpace.ForbiddenAndConjunction():
            return _all_of(_forbidden(part) for part in forbidden.components)
        case ForbiddenRelation():
            return [{forbidden.left.name: {_operator(forbidden): forbidden.right.name}}]
        case ForbiddenClause():
            return [{forbidden.hyperparameter.name: _test(forbidden, forbidden.hyperparameter)}]
    raise ObjectiveError(f"a {type(forbidden).__name__} is not supported")


def _operator(compared: object) -> str:
    return next(operator for name, operator in _OPERATORS.items() if name in type(compared).__name__)


def _all_of(parts: Iterable[Sequence[Plain]]) -> list[Plain]:
    """Return alternative clauses for the conjunction of `parts`, each one of alternatives."""
    alternatives = []
    for clauses in product(*parts):
        merged: Plain = {}
        for name, test in (item for clause in clauses for item in clause.items()):
            previous = merged.get(name)
            if name not in merged:
                merged[name] = test
            elif isinstance(previous, list) and isinstance(test, list):
                merged[name] = [value for value in previous if value in test]
            elif isinstance(previous, dict) and isinstance(test, dict) and not set(previous) & set(test):
                merged[name] = {**previous, **test}
            else:
                raise ObjectiveError(f"the conditions on {name!r} cannot be joined; write them as one")
        alternatives.append(merged)
    return alternatives


def _levels(parameter: AnyHyperparameter) -> list[object]:
    match parameter:
        case ConfigSpace.CategoricalHyperparameter():
            return [_scalar(choice) for choice in parameter.choices]
        case ConfigSpace.OrdinalHyperparameter():
            return [_scalar(level) for level in parameter.sequence]
        case ConfigSpace.Constant():
            return [_scalar(parameter.value)]
        case IntegerHyperparameter() if parameter.upper - parameter.lower <= 10_000:
            return list(range(int(parameter.lower), int(parameter.upper) + 1))
    raise ObjectiveError(f"a condition that {parameter.name!r} differs from a value has no counterpart here")


def _scalar(value: object) -> object:
    return value.item() if hasattr(value, "item") else value
