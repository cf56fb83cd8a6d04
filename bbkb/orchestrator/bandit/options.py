"""Options that several strategies have, with their bounds and meanings, and the check of a value that was
given in Python.

A field is written `Annotated[float, Gt(0), Doc("what it means")]`.
pydantic checks campaign files by the same annotations, and the JSON Schema and the list of strategies come
from them. Options of kernels, models and warm starts are declared with their classes. Nothing here imports
NumPy, so that a campaign file is read without it.
"""

import math
import operator
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from enum import Enum
from functools import cache
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Le, Lt
from typing_extensions import Doc

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

REFUSED = "refused"  # pydantic's type of an error whose message is a predicate
_SHOWN = 80  # the largest number of characters of a value in a message
_LARGEST = 2.0**63  # larger integers exceed NumPy's range
_NOUNS: Mapping[object, str] = {bool: "True or False", str: "a text", Mapping: "a mapping", NoneType: "left out"}
_BOUNDS = ((">", "gt", operator.gt), (">=", "ge", operator.ge), ("<", "lt", operator.lt), ("<=", "le", operator.le))

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
        "Share of the exploring picks that repeat the best candidates while values are noisy, in [0, 1]; the others "
        "are new candidates. 0: the strategy itself decides about repeats."
    ),
]


@dataclass(frozen=True)
class Options:
    """The base of a strategy's options. Raises ValueError if a value is out of range."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = {"extra": "forbid"}
    SECTION: ClassVar[str] = "strategy"  # the prefix of a field's name in messages

    def __post_init__(self) -> None:
        check_options(self, self.SECTION)


@dataclass(frozen=True, slots=True)
class AnyNumber:
    """Metadata of a number that may be infinite. The class that has the field checks its range."""


@dataclass(frozen=True, slots=True)
class Tagged:
    """An annotation of a union of dataclasses: `tag`, a key or a function of the mapping, selects
    the member, so that messages concern the intended one. `otherwise`: the rule if a function
    selects none."""

    tag: str | Callable[[Any], str | None]
    members: tuple[tuple[str, type], ...]
    otherwise: str = ""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> dict[str, Any]:
        choices = {name: handler.generate_schema(cls) for name, cls in self.members}
        schema: dict[str, Any] = {"type": "tagged-union", "discriminator": self.tag, "choices": choices}
        if self.otherwise:
            schema |= {"custom_error_type": REFUSED, "custom_error_message": self.otherwise}
        return schema


@dataclass(frozen=True, slots=True)
class Like:
    """Metadata of an option, such as a kernel, that may be any object with the methods of the
    runtime-checkable `protocol`."""

    protocol: type


class _RefusedError(ValueError):
    """A value is rejected. The message continues "must be"."""


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
    for name, annotation in _hints(type(options)).items():
        value = getattr(options, name)
        try:
            plain = _checked(annotation, value)
        except _RefusedError as refused:
            raise ValueError(f"{section}.{name} must be {refused}, got {excerpt(value)}") from None
        object.__setattr__(options, name, plain)


def excerpt(value: object) -> str:
    """Return a value for a message: its `repr` on one line, cut to 80 characters."""
    text = " ".join(repr(value).split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


@cache
def _hints(cls: "type[DataclassInstance]") -> Mapping[str, Any]:
    hints = get_type_hints(cls, include_extras=True)
    return {field.name: hints[field.name] for field in fields(cls) if field.init}


def _parts(annotation: Any) -> tuple[Any, Any, tuple[Any, ...]]:
    """Return the type of an annotation, its origin (`Union` of a union), and its metadata."""
    metadata = getattr(annotation, "__metadata__", ())
    base = get_args(annotation)[0] if metadata else annotation
    origin = get_origin(base) or base
    return base, Union if origin is UnionType else origin, metadata


def _checked(annotation: Any, value: object) -> object:
    """Return `value` as a plain value of the annotated type, or raise _RefusedError with the rule."""
    base, origin, metadata = _parts(annotation)
    plain: Any = value
    if getattr(plain, "ndim", None) == 0:  # of NumPy
        plain = plain.item()
    if origin is Union:
        for member in (*get_args(base), *(entry.protocol for entry in metadata if isinstance(entry, Like))):
            with suppress(_RefusedError):
                return _checked(member, plain)
    elif base in (int, float):
        if not isinstance(plain, bool) and isinstance(plain, Integral if base is int else Real):
            return _number_within(plain, base is int, metadata)
    elif origin is Literal or (isinstance(base, type) and issubclass(base, Enum)):
        choices = get_args(base) or tuple(base)
        if isinstance(plain, str) and plain in choices:
            return choices[choices.index(plain)]
    elif isinstance(plain, origin) and not isinstance(plain, type):
        return plain
    raise _RefusedError(_noun(annotation))


def _number_within(plain: Any, is_whole: bool, metadata: tuple[Any, ...]) -> float:
    """Return an int or float within the bounds in `metadata`, finite unless it may be any number."""
    try:
        number = float(plain)
    except OverflowError:
        number = math.inf
    interval = _interval(metadata)
    is_within = all(
        holds(number, getattr(entry, name)) for entry in metadata for _, name, holds in _BOUNDS if hasattr(entry, name)
    )
    if not is_within:
        raise _RefusedError(interval)
    if not (AnyNumber() in metadata or math.isfinite(number)) or (is_whole and abs(number) >= _LARGEST):
        raise _RefusedError(" and ".join(filter(None, (interval, "finite"))))
    return int(plain) if is_whole else number


def _interval(metadata: tuple[Any, ...]) -> str:
    bounds = ((sign, getattr(entry, name, None)) for entry in metadata for sign, name, _ in _BOUNDS)
    return " and ".join(f"{sign} {limit:.12g}" for sign, limit in bounds if limit is not None)


def _noun(annotation: Any) -> str:
    """Return the rule of an annotation in words that follow "must be"."""
    base, origin, metadata = _parts(annotation)
    if origin is Union:
        members = (*get_args(base), *(entry.protocol for entry in metadata if isinstance(entry, Like)))
        return " or ".join(_noun(member).removeprefix("one of ") for member in members)
    if base in (int, float):
        return f"{'a whole number' if base is int else 'a number'} {_interval(metadata)}".rstrip()
    if origin is Literal or (isinstance(base, type) and issubclass(base, Enum)):
        return f"one of {', '.join(map(str, get_args(base) or tuple(base)))}"
    return _NOUNS.get(origin, f"a {origin.__name__}")
