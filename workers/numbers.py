"""Converts numbers that an objective returned to plain floats."""

import contextlib
import math
import numbers
import reprlib

from objectives.objective import InvalidValueError


def finite(name: str, value: object) -> float:
    """`value` as a finite float; raises InvalidValueError, which begins with `name`, for anything else."""
    number = finite_or_not(name, value)
    if not math.isfinite(number):
        raise InvalidValueError(f"{name} must be a finite number, got {number}")
    return number


def finite_or_not(name: str, value: object) -> float:
    """`value` as a float, NaN and infinities included; raises InvalidValueError for what is no real number."""
    # True is an int in Python, but as a result it is a mistake
    if not isinstance(value, bool):
        with contextlib.suppress(OverflowError):  # an int beyond 1.8e308
            if isinstance(value, numbers.Real):
                return float(value)
    raise InvalidValueError(f"{name} must be a finite number, got {excerpt(value)}")


def excerpt(value: object) -> str:
    """A short text for any value, also one whose repr is huge, slow or broken."""
    if isinstance(value, int) and value.bit_length() > 1000:  # int -> decimal text takes quadratic time
        return f"an int of {value.bit_length()} bits"
    try:
        text = reprlib.repr(value)
    except Exception:
        text = "a value whose repr fails"
    return f"{text} ({type(value).__name__})"
