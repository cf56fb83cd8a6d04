"""Converts the return value of an objective to a finite value and a limited number of metrics.

The evaluation fails if the value is not a finite number. Metrics that are not finite numbers or
exceed the limits are omitted, with a remark.
"""

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite  # bound here: an objective in this process may replace it in `math`

from bbkb.objectives.objective import NAME_CHARACTERS, Evaluation, InvalidValueError
from bbkb.objectives.returned import check_bounds, number_of

_NAMED = 3  # the number of metrics that a remark names


@dataclass(frozen=True, slots=True)
class CheckedResult:
    """A value and its metrics."""

    value: float
    metrics: Mapping[str, float] = field(default_factory=dict)
    remark: str = ""  # the omitted metrics and the reasons, in one short line


def check_result(evaluation: object) -> CheckedResult:
    """Return the result to store. Raises InvalidValueError if it has no finite value."""
    if not isinstance(evaluation, Evaluation):
        raise InvalidValueError(f"an objective must return an Evaluation, got {excerpt(evaluation)}")
    value = finite("value", evaluation.value)
    returned: object = evaluation.metrics  # any object, returned by the objective
    if not isinstance(returned, Mapping):
        return CheckedResult(value, {}, f"metrics left out: they must be a mapping, got {type(returned).__name__}")
    metrics: dict[str, float] = {}
    left_out = [_entry(str(name), why) for name, why in evaluation.left_out.items()]
    for key, metric in returned.items():
        name = printable(key)
        try:
            check_bounds(name, len(metrics))
            metrics[name] = _metric(name, metric)
        except InvalidValueError as error:
            left_out.append(_entry(name, str(error)))
    return CheckedResult(value, metrics, _remark(left_out))


def _metric(name: str, metric: object) -> float:
    """Convert a metric to a finite float. Raises InvalidValueError with its type."""
    try:
        return finite(name, metric)
    except InvalidValueError:
        raise InvalidValueError(f"{type(metric).__name__}, not a finite number") from None


def _entry(name: str, why: str) -> str:
    return f"{shorten(name, NAME_CHARACTERS // 2)} ({why})"


def _remark(left_out: list[str]) -> str:
    if not left_out:
        return ""
    ending = f" and {len(left_out) - _NAMED} more" if len(left_out) > _NAMED else ""
    return f"metrics left out: {', '.join(left_out[:_NAMED])}{ending}"


def shorten(text: str, length: int) -> str:
    """Return `text`, cut to at most `length` characters."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def printable(text: object) -> str:
    """Return `text` without lone surrogates and NUL, which databases and JSON writers reject."""
    return str(text).encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\x00")


def finite(name: str, value: object) -> float:
    """Convert `value` to a finite float. Raises InvalidValueError with `name` in its message."""
    number = finite_or_not(name, value)
    if not isfinite(number):
        raise InvalidValueError(f"{name} must be a finite number, got {number}")
    return number


def finite_or_not(name: str, value: object) -> float:
    """Convert `value` to a float, which may be NaN or infinite.

    Raises InvalidValueError if it is not a number.

    Everything that `bbkb.objectives.returned.number_of` converts is a number, including a tensor without
    dimensions and a Decimal.
    """
    number = number_of(value)
    if number is None:
        hint = "; write float(...) if it is meant as a number" if isinstance(value, bool | str) else ""
        hint = "; give one of its numbers, such as its mean" if hasattr(value, "ndim") else hint
        raise InvalidValueError(f"{name} must be a finite number, got {excerpt(value)}{hint}")
    return number


def excerpt(value: object) -> str:
    """Return a short text for any value, even if its repr is huge, slow or broken."""
    if isinstance(value, int) and value.bit_length() > 1000:  # quadratic time as text
        return f"an int of {value.bit_length()} bits"
    try:
        text = reprlib.repr(value)
    except Exception:
        text = "a value whose repr fails"
    return f"{text} ({type(value).__name__})"
