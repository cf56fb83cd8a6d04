"""What a user's code returns or prints: its conversion to an evaluation, with strict rules for numbers
and clear messages; the lines `BBKB_REPORT step value` of a shell command, with further numbers as
`name=number`, read while the command runs; and metrics that a campaign requires, without which a
result is a failure.
"""

import math
import os
import signal
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import SupportsFloat, SupportsIndex

import numpy as np

from bbkb.objectives.objective import (
    MOST_METRICS,
    NAME_CHARACTERS,
    AttemptReport,
    Evaluation,
    EvaluationStopped,
    HasPreparation,
    InvalidValueError,
    Objective,
    Parameters,
    Report,
    gives_value,
)


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
        remedy = ""
        if value is None:
            remedy = "; is a return statement missing?"
        elif isinstance(value, bool | np.bool_ | str):
            remedy = "; write float(...) if it is meant as a number"
        elif isinstance(value, tuple) and value and isinstance(value[-1], Mapping):
            remedy = "; write further numbers into one mapping: {'value': ..., 'seconds': ...}"
        elif hasattr(value, "__len__"):
            remedy = "; return one of its numbers, such as its mean"
        raise InvalidValueError(f"{origin} must return a number, got {type(value).__name__} {_short(value)}{remedy}")
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


def _short(value: object) -> str:
    """Return at most 80 characters of a representation, even of integers that Python refuses to
    print."""
    try:
        text = repr(value[:81] if isinstance(value, str | bytes) else value)
    except Exception:
        return "that cannot be shown"
    return text if len(text) <= 80 else text[:79] + "…"


PREFIX = b"BBKB_REPORT"
ARGUMENTS = ("value", "step")  # arguments of `report`, which cannot name metrics
LONGEST_LINE = 65536  # bytes, more than the most metrics with the longest names
_FORM = "BBKB_REPORT step value name=number"
STOP_GRACE_SECONDS = 10.0  # before SIGKILL, for a command that the campaign stops early


class ReportLines:
    """Finds the reports in the output of the process group `group`, and ends the group when
    `report` requests it.

    A line or a metric that cannot be recorded is omitted; `left_out` gives the reason.
    """

    def __init__(self, report: Report, group: int) -> None:
        self._report = report
        self._group = group
        self._line = b""
        self._stopped: EvaluationStopped | None = None
        self._kill: threading.Timer | None = None
        self.left_out: dict[str, str] = {}

    def take(self, output: bytes) -> None:
        """Read another piece of output."""
        *lines, incomplete = (self._line + output).split(b"\n")
        self._line = incomplete[: LONGEST_LINE + 1]  # it is still too long when its end arrives
        for line in lines:
            if line.startswith(PREFIX) and self._stopped is None:
                self._take_line(line)

    @property
    def is_stopped(self) -> bool:
        """Whether the campaign has stopped the command."""
        return self._stopped is not None

    def finish(self) -> None:
        """Finish reading after the command has ended. Raises EvaluationStopped if the campaign
        stopped it."""
        if self._kill is not None:
            self._kill.cancel()
        if self._stopped is not None:
            raise self._stopped

    def _take_line(self, line: bytes) -> None:
        if len(line) > LONGEST_LINE:
            self.left_out["a report"] = f"a line of more than {LONGEST_LINE} bytes"
            return
        try:
            step, value, *named = line.removeprefix(PREFIX).decode().split()
            reported, at = float(value), int(step)
            metrics: dict[str, float] = {}
            for text in named:
                name, _, number = text.rpartition("=")
                if not name:
                    raise ValueError(f"got {text!r}")
                metrics[name] = float(number)
            recordable: dict[str, float] = {}
            for name, metric in metrics.items():
                try:
                    if name in ARGUMENTS:
                        raise InvalidValueError("an argument of report has this name")
                    check_bounds(name, len(recordable))
                    recordable[name] = metric
                except InvalidValueError as error:
                    self.left_out[f"reported {name}"] = str(error)
            self._report(reported, at, **recordable)
        except ValueError as error:  # from a conversion; the line differs from trial to trial
            self.left_out.setdefault("a report", f"it must be `{_FORM}`: {error}")
        except EvaluationStopped as stopped:
            self._stopped = stopped
            self._signal(signal.SIGTERM)
            self._kill = threading.Timer(STOP_GRACE_SECONDS, self._signal, [signal.SIGKILL])
            self._kill.daemon = True
            self._kill.start()

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._group, number)


VALUE = "value"  # the metric name of an objective's own value
_NAMED = 8  # the number of metrics that a message lists


@dataclass(frozen=True)
class WithMetrics:
    """An objective whose value is one of the metrics of `inner`.

    The required metrics come first, so that they are kept if there are too many. The value of
    `inner` becomes the metric `value`.
    """

    inner: Objective
    first: str  # the metric that becomes the value
    needed: tuple[tuple[str, str], ...]  # required metrics, each with its key in the campaign file
    deviation: str | None = None  # the required metric that must not be negative

    def prepare(self) -> None:
        """See `HasPreparation`."""
        if isinstance(self.inner, HasPreparation):
            self.inner.prepare()

    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        """See `Objective`. Raises InvalidValueError if a metric is missing or not finite."""
        if not gives_value(report):
            return self.inner.evaluate(parameters, seed, report)
        if isinstance(report, AttemptReport):
            report.value_name = self.first
        try:
            evaluation = self.inner.evaluate(parameters, seed, report)
            returned = {**evaluation.metrics, VALUE: evaluation.value}
        except MissingValueError as error:  # a mapping that contains only metrics is sufficient
            if self.first == VALUE:
                raise
            evaluation = error.evaluation
            returned = dict(evaluation.metrics)
        for name, place in self.needed:
            if name in evaluation.left_out:
                raise InvalidValueError(f"the metric {name!r}, which {place} names, is a {evaluation.left_out[name]}")
            if name not in returned:
                listed = ", ".join(list(returned)[:_NAMED]) or "none"
                raise InvalidValueError(
                    f"the objective returned no metric {name!r}, which {place} names; it has {listed}"
                )
            if not math.isfinite(returned[name]):
                raise InvalidValueError(
                    f"the metric {name!r}, which {place} names, must be finite, got {returned[name]}"
                )
        if self.deviation is not None and returned[self.deviation] < 0.0:
            raise InvalidValueError(
                f"the metric {self.deviation!r} is the deviation of the value and must be >= 0, "
                f"got {returned[self.deviation]}"
            )
        value = returned.pop(self.first)
        named = {name: returned[name] for name, _ in self.needed if name in returned}
        return Evaluation(value, {**named, **returned}, evaluation.left_out)
