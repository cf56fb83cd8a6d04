"""Converts the return value of an objective to a finite value and a limited number of metrics.

The evaluation fails if the value is not a finite number. Metrics that are not finite numbers or
exceed the limits are omitted, with a remark.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from objectives.objective import NAME_CHARACTERS, Evaluation, InvalidValueError
from objectives.returned import check_bounds
from workers.numbers import excerpt, finite

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
    short = name if len(name) <= NAME_CHARACTERS // 2 else name[: NAME_CHARACTERS // 2 - 1] + "…"
    return f"{short} ({why})"


def _remark(left_out: list[str]) -> str:
    if not left_out:
        return ""
    ending = f" and {len(left_out) - _NAMED} more" if len(left_out) > _NAMED else ""
    return f"metrics left out: {', '.join(left_out[:_NAMED])}{ending}"


def printable(text: object) -> str:
    """Return `text` without lone surrogates and NUL, which databases and JSON writers reject."""
    return str(text).encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\x00")
