"""Converts numbers that an objective returned to plain floats."""

import reprlib
from math import isfinite  # bound here: an objective that runs in this process may replace it in `math`

from objectives.objective import InvalidValueError
from objectives.returned import number_of


def finite(name: str, value: object) -> float:
    """Convert `value` to a finite float. Raises InvalidValueError with `name` in its message."""
    number = finite_or_not(name, value)
    if not isfinite(number):
        raise InvalidValueError(f"{name} must be a finite number, got {number}")
    return number


def finite_or_not(name: str, value: object) -> float:
    """Convert `value` to a float, which may be NaN or infinite.

    Raises InvalidValueError if it is not a number.

    Everything that `objectives.returned.number_of` converts is a number, including a tensor without
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
