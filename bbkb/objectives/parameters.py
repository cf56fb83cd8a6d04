"""The kinds of parameters in a search space.

They are plain frozen dataclasses, so that importing them costs the workers nothing. They follow
pydantic's conventions for standard dataclasses (a mapping in a campaign file becomes one of them,
and unknown keys are rejected) without importing pydantic. Each kind has `when`, the conditions
under which the parameter exists, None for always; its `levels`, the values that it lists; and its
`wording`. A new kind that lists its values is a class here, a member of `OneFeature`, a case of `values_of`
and `plain_listed`, and a key in `bbkb.orchestrator.campaign.settings.PARAMETERS`.

A listed value may be a tuple, a list or a mapping. Its level is then a short text, its name, which the
log and all displays contain; `as_given` converts it for the user's code, and `as_levels` back.

A *clause* maps parameter names to tests, and holds if all of its tests hold. A list of clauses
holds if any of them holds. A test is a tuple of allowed values, or a `Comparison` with a number or
with another parameter. A test of a parameter that does not exist in a configuration (because its
own condition does not hold) never holds. The name `a + b` tests the sum of parameters; campaign files
may contain `{sum: [a, b], above: 1}` for it. Campaign files may contain a single value instead of a
tuple with one value, and a single clause instead of a list with one clause.
"""

import contextlib
import copy
import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from numbers import Real
from typing import Annotated, Any, Literal, get_args

from typing_extensions import Doc, TypedDict  # pydantic needs this variant before Python 3.12

from bbkb.objectives.errors import checks_arguments

Parameters = Mapping[str, Any]  # the values of a configuration, of any type that the space has
Sampler = Literal["sobol", "random", "grid"]
LARGEST_SIZE = 10_000_000  # of a set of candidates
Scalar = str | int | float | bool | None
NO_TEXT = re.compile("[\x00\ud800-\udfff]")  # what file names, databases or JSON cannot represent


class Comparison(TypedDict, total=False):
    """Bounds on a number, each of which is a number or the name of another parameter."""

    above: Annotated[float | str, Doc("The value exceeds this value, or that of the parameter with this name.")]
    below: Annotated[float | str, Doc("The value is below this value, or that of the parameter with this name.")]
    at_least: Annotated[float | str, Doc("The value is at least this value, or that of the parameter with this name.")]
    at_most: Annotated[float | str, Doc("The value is at most this value, or that of the parameter with this name.")]
    equals: Annotated[str, Doc("The value equals that of the parameter with this name.")]


Test = tuple[Any, ...] | Comparison
Clause = Mapping[str, Test]
Written = Mapping[str, Scalar | Sequence[Any] | Comparison]  # a clause as in a campaign file
When = Written | Sequence[Written]

PLUS = " + "  # between the names of a sum; no parameter's name contains it
OPERATORS = ("above", "below", "at_least", "at_most", "equals")


def clauses_of(written: When) -> tuple[Clause, ...]:
    """Return clauses in this module's form. Raises ValueError if they are invalid."""
    several = written if isinstance(written, list | tuple) else (written,)
    for clause in several:
        if not isinstance(clause, Mapping) or not clause:
            raise ValueError(f"must map parameters to values, such as {{model: [svm]}}, got {clause!r}")
    if not several:
        raise ValueError("must hold at least one condition, got none")
    return tuple(
        {str(name): _test(str(name), test) for name, test in _with_named_sum(clause).items()} for clause in several
    )


def _with_named_sum(clause: Mapping[str, object]) -> Mapping[str, object]:
    """Return `{sum: [a, b], above: 1}` as `{"a + b": {above: 1}}`, and other clauses unchanged."""
    bounds = {operator: clause[operator] for operator in OPERATORS if operator in clause}
    if "sum" not in clause or not bounds:
        return clause
    names = clause["sum"]
    if not isinstance(names, list | tuple) or len(names) < 2 or not all(isinstance(name, str) for name in names):
        raise ValueError(f"sum must be a list of two or more parameters, such as [a, b], got {names!r}")
    others = {name: test for name, test in clause.items() if name != "sum" and name not in bounds}
    return {**others, PLUS.join(names): bounds}


def _test(name: str, test: object) -> Test:
    if isinstance(test, Mapping):
        return _comparison(name, test)
    if PLUS in name:
        raise ValueError(f"{name} must be compared by {', '.join(OPERATORS)}, got {test!r}")
    values = tuple(test) if isinstance(test, list | tuple) else (test,)
    if not values:
        raise ValueError(f"{name} must be compared with at least one value, got none")
    return tuple(plain_value(f"{name} must be compared with", value) for value in values)


def _comparison(name: str, test: Mapping[object, object]) -> Comparison:
    if not test or not set(test) <= set(OPERATORS):
        raise ValueError(
            f"{name} must be compared by {', '.join(OPERATORS)}, got {', '.join(map(str, test)) or 'none'}"
        )
    comparison = Comparison()
    for operator in filter(test.__contains__, OPERATORS):
        bound = test[operator]
        is_number = isinstance(bound, int | float) and not isinstance(bound, bool)
        if operator == "equals":
            if not isinstance(bound, str):
                raise ValueError(
                    f"{name}.equals must name another parameter, got {bound!r}; write a value as {name}: …"
                )
            comparison["equals"] = bound
        elif isinstance(bound, str) or is_number:
            comparison[operator] = bound  # type: ignore[literal-required]  # one of OPERATORS
        else:
            raise ValueError(f"{name}.{operator} must be a number or name a parameter, got {bound!r}")
    return comparison


@dataclass(frozen=True, slots=True)
class Operand:
    """A test in a clause: a parameter, an operator and a bound."""

    name: str  # the compared parameter, or the sum `a + b` of several
    operator: str  # `in` or one of `OPERATORS`
    bound: tuple[Any, ...] | float | str  # a value, a parameter, or the values for `in`

    @property
    def summed(self) -> list[str]:
        """The compared parameters, whose sum is meant."""
        return self.name.split(PLUS)

    @property
    def other(self) -> str | None:
        """The parameter in `bound`; None if `bound` is a value."""
        return self.bound if isinstance(self.bound, str) else None


def operands(clause: Clause) -> Iterator[Operand]:
    """Yield the individual tests of `clause`."""
    for name, test in clause.items():
        if isinstance(test, tuple):
            yield Operand(name, "in", test)
        else:
            for operator, bound in test.items():
                yield Operand(name, operator, bound)  # type: ignore[arg-type]  # values of the TypedDict


def names_in(clauses: Sequence[Clause]) -> list[str]:
    """Return the distinct parameters in `clauses`, in order."""
    names = [name for clause in clauses for operand in operands(clause) for name in (*operand.summed, operand.other)]
    return list(dict.fromkeys(name for name in names if name is not None))


def wording(clauses: Sequence[Clause]) -> str:
    """Return `clauses` as text: `model is svm and depth > 3, or …`."""
    return ", or ".join(" and ".join(map(_words, operands(clause))) for clause in clauses)


_SIGNS = {"above": ">", "below": "<", "at_least": ">=", "at_most": "<=", "equals": "="}


def _words(operand: Operand) -> str:
    if isinstance(operand.bound, tuple):
        return f"{operand.name} is {' or '.join(map(str, operand.bound))}"
    return f"{operand.name} {_SIGNS[operand.operator]} {operand.bound}"


WhenOption = Annotated[
    When | None, Doc("The conditions under which the parameter exists, such as {model: svm}; None: always.")
]
Confidence = Literal["low", "medium", "high"]
PriorOption = Annotated[
    Any, Doc("The value that you expect to be good: the search begins near it; None: no expectation.")
]
DefaultOption = Annotated[
    Any, Doc("The value in the first evaluation, usually one known to work; None: the center of the range.")
]
ConfidenceOption = Annotated[
    Confidence | None, Doc("How sure you are of `prior`: low, medium or high; None: medium, if there is a prior.")
]
_TUPLE = "tuple"  # the only key of a mapping that stands for a tuple, which JSON lacks
_DEEPEST = 10  # levels of lists and mappings in a value
_LONGEST_NAME = 40  # characters of the name of a nested value
_SHOWN = 8  # the number of values of a parameter that its wording lists
_WHOLE = 1e-9  # the largest relative distance of a number of steps from a whole number


@checks_arguments
@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from `low` to `high`, including both.

    Raises ValueError unless low < high and both and their difference are finite, low > 0 for `log`,
    all are whole for `integer`, and high − low is a whole number of steps.
    """

    low: Annotated[float, Doc("The smallest value.")]
    high: Annotated[float, Doc("The largest value, included.")]
    log: Annotated[bool, Doc("Whether values are spread evenly in their logarithm; `low` is then > 0.")] = False
    integer: Annotated[bool, Doc("Whether values are whole numbers.")] = False
    step: Annotated[
        float | None, Doc("Leaves only low, low + step, low + 2 step, …; None: every number, or every whole one.")
    ] = None
    when: WhenOption = None
    prior: PriorOption = None
    confidence: ConfidenceOption = None
    default: DefaultOption = None

    def __post_init__(self) -> None:
        for name in ("low", "high") if self.step is None else ("low", "high", "step"):
            object.__setattr__(self, name, _number(name, getattr(self, name)))
        for name in ("log", "integer"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be True or False, got {getattr(self, name)!r}")
        bounds = f"low={self.low}, high={self.high}"
        if not (math.isfinite(self.low) and math.isfinite(self.high)):
            raise ValueError(f"low and high must be finite, got {bounds}")
        if self.low >= self.high:
            remedy = "swap the two" if self.low > self.high else "write a fixed value as {constant: value}"
            raise ValueError(f"low must be < high, got {bounds}; {remedy}")
        if not math.isfinite(self.high - self.low):
            raise ValueError(f"high - low must be a finite number, got {bounds}")
        if self.log and self.low <= 0:
            raise ValueError(f"low must be > 0 on a log scale, got {self.low}; raise it or drop `log`")
        if self.integer and not (float(self.low).is_integer() and float(self.high).is_integer()):
            raise ValueError(f"low and high of integers must be whole, got {bounds}")
        if (step := self.step) is not None:
            if not (math.isfinite(step) and step > 0):
                raise ValueError(f"step must be finite and > 0, got {step}")
            if self.integer and not float(step).is_integer():
                raise ValueError(f"step must be whole for integers, got {step}")
            steps = (self.high - self.low) / step
            if round(steps) < 1 or abs(steps - round(steps)) > _WHOLE * max(1.0, steps):
                below = self.low + math.floor(steps) * step
                raise ValueError(
                    f"high must be low plus a whole number of steps, got {bounds}, step={step}; "
                    f"the nearest are {below:.12g} and {below + step:.12g}"
                )
        _set_options(self)

    @property
    def stride(self) -> float | None:
        """The distance between neighboring values; None for real numbers."""
        return (self.step or 1.0) if self.integer else self.step

    @property
    def levels(self) -> tuple[Scalar, ...]:
        """An empty tuple: a range does not list its values."""
        return ()

    @property
    def wording(self) -> str:
        """The values as text for a message, such as `real numbers from 0 to 1`."""
        kind = "integers" if self.integer else "real numbers"
        step = f" in steps of {self.step:g}" if self.step is not None else ""
        log = ", logarithmic" if self.log else ""
        return f"{kind} from {self.low:.12g} to {self.high:.12g}{step}{log}{_rule_of(self)}"


@checks_arguments
@dataclass(frozen=True, slots=True)
class Choice:
    """One of `choices`, which have no order: all different choices are equally far apart.

    Raises ValueError if there are no choices, two are equal, one is infinite or NaN, or `weights`
    is not one positive number per choice.
    """

    choices: Annotated[
        tuple[Any, ...],
        Doc(
            "The values, which have no order: all different values are equally far apart. Texts, numbers, True, "
            "False, None, or tuples, lists and mappings of these."
        ),
    ]
    weights: Annotated[
        tuple[float, ...] | None,
        Doc("The relative frequency of each value in the initial design; None: equal frequencies."),
    ] = None
    when: WhenOption = None
    prior: PriorOption = None
    confidence: ConfidenceOption = None
    default: DefaultOption = None
    levels: tuple[Scalar, ...] = field(init=False, repr=False)
    indices: Mapping[object, int] = field(init=False, repr=False, compare=False)  # by the key of a value

    def __post_init__(self) -> None:
        _set_values(self, "choices")
        if self.weights is not None:
            numbers = tuple(_number("weights", weight) for weight in _as_tuple("weights", self.weights))
            object.__setattr__(self, "weights", numbers)
            if len(numbers) != len(self.choices):
                counts = f"{len(numbers)} for {len(self.choices)} choices"
                raise ValueError(f"weights must be one number a choice, got {counts}")
            for weight in numbers:
                if not (math.isfinite(weight) and weight > 0):
                    raise ValueError(f"weights must be finite and > 0, got {weight}")
        _set_options(self)

    @property
    def wording(self) -> str:
        """The values as text for a message, such as `one of relu, tanh`."""
        weights = "" if self.weights is None else f", drawn with weights {_list_values(self.weights)}"
        return f"one of {_list_values(self.levels)}{weights}{_rule_of(self)}"


@checks_arguments
@dataclass(frozen=True, slots=True)
class Ordered:
    """One of the sorted values `ordered`. Neighboring values are similar and equally far apart.

    Raises ValueError if there are no values, two are equal, or one cannot be stored in a log.
    """

    ordered: Annotated[tuple[Any, ...], Doc("The values, in order. Neighbors are similar and equally far apart.")]
    when: WhenOption = None
    prior: PriorOption = None
    confidence: ConfidenceOption = None
    default: DefaultOption = None
    levels: tuple[Scalar, ...] = field(init=False, repr=False)
    indices: Mapping[object, int] = field(init=False, repr=False, compare=False)  # by the key of a value

    def __post_init__(self) -> None:
        _set_values(self, "ordered")
        _set_options(self)

    @property
    def wording(self) -> str:
        """The values as text for a message, such as `one of relu, tanh`."""
        return f"one of {_list_values(self.levels)}, in this order{_rule_of(self)}"


@dataclass(frozen=True, slots=True)
class Constant:
    """Always `constant`, a value that is passed to the objective but unknown to the model. Raises
    ValueError if it cannot be stored in a log."""

    constant: Annotated[Any, Doc("The value, which is passed to the objective but unknown to the model.")]
    when: WhenOption = None
    levels: tuple[Scalar, ...] = field(init=False, repr=False)
    indices: Mapping[object, int] = field(init=False, repr=False, compare=False)  # by the key of a value

    def __post_init__(self) -> None:
        object.__setattr__(self, "constant", plain_value("constant must be", self.constant))
        _set_levels(self, "constant", (self.constant,))
        _set_options(self)

    @property
    def wording(self) -> str:
        """The values as text for a message, such as `one of relu, tanh`."""
        return f"always {self.levels[0]}"


OneFeature = Range | Ordered | Constant  # the kinds that a model treats as one number
Parameter = Choice | OneFeature
Space = Mapping[str, Parameter]


def conditions(parameter: Parameter) -> tuple[Clause, ...]:
    """Return the clauses of `when`. The parameter exists if one holds or there are none."""
    return () if parameter.when is None else clauses_of(parameter.when)


def values_of(parameter: Parameter) -> tuple[Any, ...]:
    """Return the values that a parameter lists, as the user gave them."""
    match parameter:
        case Choice():
            return parameter.choices
        case Ordered():
            return parameter.ordered
        case Constant():
            return (parameter.constant,)
    return ()


def as_given(space: Space, configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with a copy of the user's value for the name of each nested value."""
    given = dict(configuration)
    for name, parameter in space.items():
        values, levels = values_of(parameter), parameter.levels
        if values is not levels and name in configuration and configuration[name] in levels:
            given[name] = copy.deepcopy(values[levels.index(configuration[name])])
    return given


def as_levels(space: Space, configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Return a user's configuration with the name of each nested value that the space lists."""
    levels = {}
    for name, value in configuration.items():
        parameter = space.get(name)
        index = None if parameter is None or isinstance(value, Scalar) else index_of(parameter, value)
        levels[name] = value if parameter is None or index is None else parameter.levels[index]
    return levels


def index_of(parameter: Parameter, value: object) -> int | None:
    """Return the index of a level, or of a nested value, which may be a list instead of a tuple; None if the
    parameter does not list it."""
    try:
        plain = value if isinstance(value, Scalar) else plain_value("value must be", value)
    except ValueError:
        return None
    if isinstance(plain, Scalar):
        return parameter.levels.index(plain) if plain in parameter.levels else None
    return None if isinstance(parameter, Range) else parameter.indices.get(_key(plain))


def plain_listed(parameter: Parameter) -> dict[str, Any]:
    """Return the field of a parameter that lists its values, in JSON: a tuple is `{"tuple": [...]}`."""
    match parameter:
        case Choice():
            return {"choices": [_in_json(value) for value in parameter.choices]}
        case Ordered():
            return {"ordered": [_in_json(value) for value in parameter.ordered]}
        case Constant():
            return {"constant": _in_json(parameter.constant)}
    return {}


def _in_json(value: Any) -> Any:
    match value:
        case tuple():
            return {_TUPLE: [_in_json(each) for each in value]}
        case list():
            return [_in_json(each) for each in value]
        case dict():
            return {key: _in_json(each) for key, each in value.items()}
    return value


def has_prior(space: Space) -> bool:
    """Return whether any of the parameters has a value that is expected to be good."""
    return any(not isinstance(parameter, Constant) and parameter.prior is not None for parameter in space.values())


def first_value(parameter: Parameter) -> Any:
    """Return the user's value for the first evaluation: `default`, or else `prior`, or None."""
    if isinstance(parameter, Constant):
        return None
    return parameter.prior if parameter.default is None else parameter.default


def with_default(space: Space) -> list[str]:
    """Return the names of the parameters with a `default`."""
    return [name for name, parameter in space.items() if getattr(parameter, "default", None) is not None]


def _rule_of(parameter: Range | Choice | Ordered) -> str:
    expected = "" if parameter.prior is None else f", {parameter.prior} expected with {parameter.confidence} confidence"
    return expected if parameter.default is None else f"{expected}, by default {parameter.default}"


def _list_values(values: Sequence[object]) -> str:
    ending = f", … ({len(values)} in all)" if len(values) > _SHOWN else ""
    return ", ".join(map(str, values[:_SHOWN])) + ending


def _set_options(parameter: Parameter) -> None:
    if parameter.when is not None:
        try:
            object.__setattr__(parameter, "when", clauses_of(parameter.when))
        except ValueError as error:
            raise ValueError(f"when: {error}") from None
        if None in parameter.levels:
            raise ValueError("its parameter must not have the value null, which means that it does not exist")
    if isinstance(parameter, Constant):
        return
    for name in ("prior", "default"):
        with contextlib.suppress(ValueError):  # the space checks whether these values are possible
            object.__setattr__(parameter, name, plain_value(name, getattr(parameter, name)))
    plain = parameter.prior
    if plain is None and parameter.confidence is not None:
        raise ValueError(f"confidence needs prior, the value that is expected to be good, got {parameter.confidence!r}")
    if plain is not None:
        object.__setattr__(parameter, "confidence", parameter.confidence or "medium")
    if parameter.confidence not in (None, *get_args(Confidence)):
        raise ValueError(f"confidence must be low, medium or high, got {parameter.confidence!r}")


def _number(name: str, value: object) -> float:
    """Return a Python or NumPy number as a Python number. Raises ValueError for anything else."""
    plain = getattr(value, "item", lambda: value)() if isinstance(value, Real) else value
    if isinstance(plain, bool) or not isinstance(plain, int | float):
        raise ValueError(f"{name} must be a number, got {value!r}")
    try:
        float(plain)
    except OverflowError:
        raise ValueError(f"{name} must be a finite number, got {value!r}") from None
    return plain


def _as_tuple(name: str, values: object) -> tuple[Any, ...]:
    is_single = getattr(values, "ndim", 1) == 0  # 0-dimensional NumPy arrays have `__iter__`
    if is_single or isinstance(values, str | bytes | Mapping | Set) or not isinstance(values, Iterable):
        raise ValueError(f"{name} must be a list of values, got {values!r}")
    return tuple(values)


def plain_value(rule: str, value: Any, depth: int = 0) -> Any:
    """Return a value of a search space with NumPy's numbers and members of enumerations as Python's numbers and
    texts, and `{"tuple": [...]}` as a tuple. `rule` begins the message, such as `choices must hold`.

    Raises ValueError unless it is a text that can be stored, a finite number, True, False, None, or a tuple,
    list or mapping of these.
    """
    if type(value) is str and not NO_TEXT.search(value):  # most values of large lists
        return value
    value = value.item() if getattr(value, "ndim", 1) == 0 else value
    if isinstance(value, str):
        value = str.__str__(value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        value = int(value) if isinstance(value, int) else float(value)
    if isinstance(value, Mapping) and value.keys() == {_TUPLE} and isinstance(value[_TUPLE], list):
        value = tuple(value[_TUPLE])
    name = rule.partition(" ")[0]
    # NaN equals no value, and JSON lacks infinite numbers
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{name} must not be infinite or NaN, got {value}; write the text {str(value)!r}")
    if isinstance(value, str) and NO_TEXT.search(value):
        texts = f"{name}: texts of a search space must contain neither NUL nor unpaired surrogates"
        raise ValueError(f"{texts}, got {value!r:.100}")
    if isinstance(value, Scalar):
        return value
    if depth == _DEEPEST:
        raise ValueError(f"{name}: a value must not be nested more than {_DEEPEST} deep")
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise ValueError(f"{name}: the keys of a mapping must be texts, got {key!r:.100}")
        return {plain_value(rule, key, depth + 1): plain_value(rule, each, depth + 1) for key, each in value.items()}
    if type(value) in (list, tuple):
        return type(value)(plain_value(rule, each, depth + 1) for each in value)
    raise ValueError(
        f"{rule} texts, numbers, True, False, None, or tuples, lists and mappings of these, got {value!r:.100}; name "
        "each other object, and let the objective look up the name"
    )


def _set_levels(parameter: Choice | Ordered | Constant, name: str, values: tuple[Any, ...]) -> None:
    """Check that the values, which are the field `name`, differ, and set the levels: the values, with a name for each
    tuple, list and mapping. The name is its text, with a digest if it is long or also a text among the values: names
    depend on no other nested value."""
    taken = {value for value in values if isinstance(value, str)}
    levels: list[Scalar] = []
    indices: dict[object, int] = {}
    for index, value in enumerate(values):
        # compared by equality: 1, 1.0 and True count as one value, as they do for most objectives
        if (key := _key(value)) in indices:
            raise ValueError(f"{name} must differ from each other, got {value!r:.100} twice")
        indices[key] = index
        level = value
        if type(value) is not str and not isinstance(value, Scalar):
            text = str(value)
            digest = hashlib.sha256(text.encode()).hexdigest()
            shown = text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 10]}…"
            names = (f"{shown} #{digest[:length]}" for length in range(6, len(digest) + 1))
            level = text if shown == text and text not in taken else next(each for each in names if each not in taken)
            taken.add(level)
        levels.append(level)
    # the same object if none is nested, which `as_given` tests
    object.__setattr__(parameter, "levels", values if levels == [*values] else tuple(levels))
    object.__setattr__(parameter, "indices", indices)


def _key(value: object) -> object:
    """Return a hashable object that is the same for equal values, and for a list and a tuple with equal items."""
    match value:
        case str():
            return value
        case list() | tuple():
            return (list, *map(_key, value))
        case Mapping():
            return (dict, frozenset((key, _key(each)) for key, each in value.items()))
    return value


def _set_values(parameter: Choice | Ordered, name: str) -> None:
    """Check the values, which are the field `name`."""
    values = tuple(plain_value(f"{name} must hold", value) for value in _as_tuple(name, getattr(parameter, name)))
    if not values:
        raise ValueError(f"{name} must hold at least one value, got none")
    object.__setattr__(parameter, name, values)
    _set_levels(parameter, name, values)
