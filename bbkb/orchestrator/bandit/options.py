"""The meanings and ranges of a strategy's options, read from the annotations of its fields.

A field is written `Annotated[float, Gt(0), Doc("what it means")]`: bounds are those of
`annotated_types`, the text is `typing_extensions.Doc`. The JSON Schema and the list of strategies
use both. `check_options` rejects values that have another type or are out of range. Options of
several strategies are declared once, here; those of kernels, models and warm starts with their
classes.
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from enum import Enum
from functools import cache
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
from annotated_types import Ge, Gt, Le, Lt
from typing_extensions import Doc

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_SHOWN = 80  # the largest number of characters of a value in a message
_LARGEST = 2.0**63  # larger integers exceed NumPy's range
_NOUNS: Mapping[type, str] = {bool: "True or False", str: "a text", Mapping: "a mapping", NoneType: "left out"}
# for each kind of bound: its symbol, its test, and its attribute
_BOUNDS: Mapping[type, tuple[str, Callable[[float, float], bool], str]] = {
    Gt: (">", operator.gt, "gt"),
    Ge: (">=", operator.ge, "ge"),
    Lt: ("<", operator.lt, "lt"),
    Le: ("<=", operator.le, "le"),
}

Regularization = Annotated[
    float,
    Gt(0),
    Doc("λ, the ridge parameter, > 0; smaller values learn more from each pull and shorten batches."),
]
ModelNoise = Annotated[float, Gt(0), Doc("λ, the variance of the noise in the model, > 0.")]
NoiseVariance = Annotated[float, Ge(0), Doc("ξ², an upper bound on the variance of the reward's noise, ≥ 0.")]
NoiseScale = Annotated[float, Ge(0), Doc("R: the noise is R-sub-Gaussian, ≥ 0.")]
NormBound = Annotated[float, Ge(0), Doc("An upper bound on the RKHS norm of f, ≥ 0: F or B in the papers.")]
FailureProbability = Annotated[float, Gt(0), Lt(1), Doc("δ, the failure probability, in (0, 1).")]
Oversampling = Annotated[
    Annotated[float, Ge(1)] | Literal["theory"],
    Doc(
        "q̄, the oversampling of the dictionary, ≥ 1, 2 in the experiments; `theory`: 72 C̃ log(4t/δ) after t pulls, "
        "as in Theorem 2 (C̃ = 1 for `bkb`)."
    ),
]
DriftThreshold = Annotated[
    float,
    Ge(1),
    Doc("C̃, the factor by which the posterior may drift within a batch, ≥ 1; with 1 batches hold one pull."),
]
Width = Annotated[
    Annotated[float, Gt(0)] | None,
    Doc("Standard deviations in the upper confidence bound, > 0, instead of the formula; None: the formula."),
]
BatchSize = Annotated[int, Ge(1), Doc("The largest number of pending pulls, ≥ 1.")]
MostPending = Annotated[
    Annotated[int, Ge(1)] | None,
    Doc("The largest number of pending pulls, ≥ 1; None, in mode `async`: the number of workers."),
]
RefreshGrowth = Annotated[
    float,
    Ge(0),
    Doc("In mode `async`: the share by which results have grown when a refresh is due; 0: after each."),
]
VerifiedShare = Annotated[
    float,
    Ge(0),
    Le(1),
    Doc(
        "Share of the picks that repeat the best candidates while values are noisy, in [0, 1]; the other picks "
        "repeat none until all candidates were evaluated. 0: the strategy itself decides about repeats."
    ),
]


@dataclass(frozen=True)
class Options:
    """The base of a strategy's options. Raises ValueError if a value is out of range."""

    SECTION: ClassVar[str] = "strategy"  # the prefix of a field's name in messages

    def __post_init__(self) -> None:
        check_options(self, self.SECTION)


@dataclass(frozen=True, slots=True)
class AnyNumber:
    """Metadata of a number that may be infinite. The class that has the field checks its range."""


@dataclass(frozen=True, slots=True)
class Like:
    """Metadata of an option, such as a kernel, that may be any object with the methods of the
    runtime-checkable `protocol`."""

    protocol: type


class _RefusedError(ValueError):
    """A value is rejected. The message continues "must be"."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """The rule of a field."""

    noun: str  # the rule, in words that follow "must be"
    take: Callable[[object], object]  # returns a plain value of the field's type, or raises _RefusedError


def check_options(options: "DataclassInstance", section: str = "strategy") -> None:
    """Check the fields of a frozen dataclass against their annotations. NumPy's numbers become
    Python's.

    Args:
        options: the instance, in its `__post_init__`.
        section: the prefix of a field's name in messages.

    Raises:
        ValueError: if a value has another type or is out of range; the message names field, rule
            and value.
    """
    for name, rule in _rules(type(options)).items():
        value = getattr(options, name)
        try:
            plain = rule.take(value)
        except _RefusedError as refused:
            raise ValueError(f"{section}.{name} must be {refused}, got {excerpt(value)}") from None
        object.__setattr__(options, name, plain)


def excerpt(value: object) -> str:
    """Return a value for a message: its `repr` on one line, cut to 80 characters."""
    text = " ".join(repr(value).split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def documentation_of(cls: type) -> dict[str, str]:
    """Return the meaning of each field that has a `Doc`, the outermost one if there are several."""
    hints = get_type_hints(cls, include_extras=True)
    return {
        name: entry.documentation
        for name in getattr(cls, "__dataclass_fields__", hints)  # inherited fields first
        for entry in getattr(hints[name], "__metadata__", ())
        if isinstance(entry, Doc)
    }


@cache
def _rules(cls: "type[DataclassInstance]") -> Mapping[str, _Rule]:
    hints = get_type_hints(cls, include_extras=True)
    return {field.name: _rule(hints[field.name]) for field in fields(cls) if field.init}


def _rule(annotation: object) -> _Rule:
    metadata: tuple[object, ...] = getattr(annotation, "__metadata__", ())
    base = get_args(annotation)[0] if metadata else annotation
    origin = get_origin(base) or base
    if origin in (Union, UnionType):
        likes = [_instance(entry.protocol) for entry in metadata if isinstance(entry, Like)]
        return _either([*map(_rule, get_args(base)), *likes])
    if origin is Literal:
        return _choice(get_args(base))
    if base in (int, float):
        return _number(metadata, is_whole=base is int)
    if isinstance(base, type) and issubclass(base, Enum):
        return _choice(tuple(base))
    if isinstance(origin, type):
        return _instance(origin)
    raise TypeError(f"an option cannot be annotated with {annotation!r}")


def _number(metadata: tuple[object, ...], is_whole: bool) -> _Rule:
    """Return the rule for a number with the bounds in `metadata`."""
    bounds = [
        (sign, holds, float(getattr(entry, name)))
        for entry in metadata
        for kind, (sign, holds, name) in _BOUNDS.items()
        if type(entry) is kind
    ]
    interval = " and ".join(f"{sign} {limit:.12g}" for sign, _, limit in bounds)
    noun = " ".join(filter(None, ("a whole number" if is_whole else "a number", interval)))

    def take(value: object) -> object:
        number = _plain_number(value, is_whole)
        if number is None:
            raise _RefusedError(noun)
        if not all(holds(number, limit) for _, holds, limit in bounds):
            raise _RefusedError(interval)
        if not (AnyNumber() in metadata or math.isfinite(number)) or (is_whole and abs(number) >= _LARGEST):
            raise _RefusedError(" and ".join(filter(None, (interval, "finite"))))
        return number

    return _Rule(noun, take)


def _plain_number(value: object, is_whole: bool) -> float | None:
    """Return a Python or NumPy number (or a 0-d array) as a Python number; otherwise None."""
    plain = value.item() if isinstance(value, np.ndarray) and value.ndim == 0 else value
    if isinstance(plain, bool | np.bool_) or not isinstance(plain, Integral if is_whole else Real):
        return None
    try:
        number = float(plain)
    except OverflowError:
        return math.inf
    return int(plain) if isinstance(plain, Integral) and is_whole and abs(number) < _LARGEST else number


def _choice(values: tuple[object, ...]) -> _Rule:
    """Return the rule for one of `values`: strings, or the members of an enumeration."""
    noun = f"one of {', '.join(map(str, values))}"

    def take(value: object) -> object:
        if not isinstance(value, str) or value not in values:
            raise _RefusedError(noun)
        return values[values.index(value)]

    return _Rule(noun, take)


def _instance(cls: type) -> _Rule:
    """Return the rule for an instance of a class or a protocol."""
    noun = _NOUNS.get(cls, f"a {cls.__name__}")

    def take(value: object) -> object:
        plain = bool(value) if isinstance(value, np.bool_) else value
        if not isinstance(plain, cls) or isinstance(plain, type):
            raise _RefusedError(noun)
        return plain

    return _Rule(noun, take)


def _either(members: Sequence[_Rule]) -> _Rule:
    """Return the rule for a value that satisfies any one of several rules."""
    noun = " or ".join(member.noun.removeprefix("one of ") for member in members)

    def take(value: object) -> object:
        for member in members:
            with suppress(_RefusedError):
                return member.take(value)
        raise _RefusedError(noun)

    return _Rule(noun, take)
