"""Converts the return value of a user's code to an evaluation, with strict rules for numbers and
clear messages."""

import math
from collections.abc import Mapping
from typing import SupportsFloat, SupportsIndex

import numpy as np

from bbkb.objectives.objective import MOST_METRICS, NAME_CHARACTERS, Evaluation, InvalidValueError


class MissingValueError(InvalidValueError):
    """The returned mapping has no value. `evaluation`: its other entries, with the value NaN."""

    def __init__(self, message: str, evaluation: Evaluation) -> None:
        super().__init__(message)
        self.evaluation = evaluation

    def __reduce__(self) -> tuple[type, tuple[str, Evaluation]]:
        return type(self), (str(self), self.evaluation)


def check_bounds(name: str, count: int) -> None:
    """Raise InvalidValueError if a metric with this name cannot be added to `count` others."""
    if count >= MOST_METRICS:
        raise InvalidValueError(f"more than {MOST_METRICS}")
    if len(name) > NAME_CHARACTERS:
        raise InvalidValueError(f"its name has more than {NAME_CHARACTERS} characters")


def as_evaluation(returned: object, origin: str) -> Evaluation:
    """Convert the result of an objective called `origin` to an evaluation. The result is a number,
    or a mapping with `value`.

    NaN and infinity count as numbers. An entry beside `value` that is not a number is omitted, and
    named in the evaluation. Raises InvalidValueError, with the returned value, if the value is not
    a number, and MissingValueError if the mapping has no value.
    """
    if not isinstance(returned, Mapping):
        return Evaluation(as_number(returned, origin))
    value = as_number(returned["value"], origin) if "value" in returned else math.nan
    metrics: dict[str, float] = {}
    left_out: dict[str, str] = {}
    for name, entry in returned.items():
        if name == "value":
            continue
        try:
            metrics[str(name)] = as_number(entry, origin)
        except InvalidValueError:
            left_out[str(name)] = f"{type(entry).__name__}, not a number"
    evaluation = Evaluation(value, metrics, left_out)
    if "value" not in returned:
        message = f"{origin} must return a mapping with 'value', got keys {_short(list(returned))}"
        if metrics:
            name = next(iter(metrics))
            message += f"; call one of them 'value', or name it as the goal: objectives: [{{metric: {name}, …}}]"
        raise MissingValueError(message, evaluation)
    return evaluation


def as_number(value: object, origin: str) -> float:
    """Convert the result of `origin` to a float. Raises InvalidValueError if it is not a number."""
    number = number_of(value)
    if number is None:
        shown_value = f"{type(value).__name__} {_short(value)}{remedy_for(value)}"
        raise InvalidValueError(f"{origin} must return a number, got {shown_value}")
    return number


def number_of(value: object) -> float | None:
    """Convert a number to a float: numbers of Python and NumPy, arrays and tensors without
    dimensions, and any other object with `__float__` or `__index__`; None for everything else."""
    # bool and text would convert, but are more likely mistakes (a returned comparison, a value that
    # was not parsed)
    is_slip = isinstance(value, bool | np.bool_ | np.complexfloating) or getattr(value, "ndim", 0) != 0
    if isinstance(value, SupportsFloat | SupportsIndex) and not is_slip:
        try:
            # the number of a tensor that has a gradient is read without the gradient, because
            # PyTorch warns about `float(tensor)`
            return float(value.detach()) if hasattr(value, "detach") else float(value)
        except (TypeError, ValueError, OverflowError):
            return None
    return None


def remedy_for(value: object) -> str:
    """Return a remedy for `value`, as the end of a message; empty if there is none."""
    if value is None:
        return "; is a return statement missing?"
    if isinstance(value, bool | np.bool_ | str):
        return "; write float(...) if it is meant as a number"
    if isinstance(value, tuple) and value and isinstance(value[-1], Mapping):
        return "; write further numbers into one mapping: {'value': ..., 'seconds': ...}"
    return "; return one of its numbers, such as its mean" if hasattr(value, "__len__") else ""


def _short(value: object) -> str:
    """Return at most 80 characters of a representation, even of integers that Python refuses to
    print."""
    try:
        text = repr(value[:81] if isinstance(value, str | bytes) else value)
    except Exception:
        return "that cannot be shown"
    return text if len(text) <= 80 else text[:79] + "…"
