"""What an attempt returns and reports: checks of its numbers, the function `report` for objectives,
which raises if the trial is stopped, and the reports that a trial's folder keeps.

An evaluation fails if its value is not a finite number. Metrics that are not finite numbers or
exceed the limits are omitted, with a remark. If a process is killed, its last reports may not have
reached the log. A training that continues from a checkpoint does not repeat their steps, so the
next attempt reports the values that are stored beside the checkpoint.
"""

import contextlib
import json
import math
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isfinite  # bound here: an objective in this process may replace it in `math`
from pathlib import Path

from bbkb.objectives.machines import AttemptReport, Machine
from bbkb.objectives.objective import NAME_CHARACTERS, Evaluation, EvaluationStopped, InvalidValueError
from bbkb.objectives.returned import check_bounds, number_of
from bbkb.workers.messages import Report
from bbkb.workers.output import KEPT_REPORTS

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


class KeptReports:
    """The reports of all attempts of a trial, for an attempt that adds to them.

    A file that cannot be read or written is ignored: it only fills gaps after a kill.
    """

    def __init__(self, folder: Path, trial: int, attempt: int, recorded_step: int) -> None:
        """Use the file in `folder`. `recorded_step` is the trial's largest step in the log."""
        self._file = folder / KEPT_REPORTS
        self._trial = trial
        self._attempt = attempt
        self._recorded_step = recorded_step

    def add(self, report: Report) -> None:
        """Append a report."""
        with contextlib.suppress(OSError), self._file.open("a", encoding="utf-8") as file:
            file.write(_line(report))

    def missing(self, before: float = math.inf) -> list[Report]:
        """Return the reports that the log lacks, up to the step `before`, in the order of steps.

        All other reports are removed from the file.
        """
        try:
            lines = self._file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            return []
        by_step = dict(filter(None, map(_read, lines)))
        steps = sorted(step for step in by_step if self._recorded_step < step < before)
        missing = [Report(self._trial, self._attempt, step, by_step[step]) for step in steps]
        if len(missing) < len(lines):
            self._replace(missing)
        return missing

    def _replace(self, reports: list[Report]) -> None:
        draft = self._file.with_name(f"{KEPT_REPORTS}.draft")
        with contextlib.suppress(OSError):
            draft.write_text("".join(map(_line, reports)), encoding="utf-8")
            draft.replace(self._file)


def _line(report: Report) -> str:
    return f"{json.dumps([report.step, dict(report.values)])}\n"


def _read(line: str) -> tuple[int, dict[str, float]] | None:
    """Return the step and the numbers on a line; None if the process was killed while writing it."""
    try:
        step, values = json.loads(line)
        return int(step), {str(name): float(number) for name, number in values.items()}
    except (ValueError, TypeError, AttributeError):
        return None


RECORDED_WHOLE = 1000  # the number of reports that are all recorded
LARGEST_STEP = 2**53  # larger ones are inexact in floats, and do not fit into tables

# Sends a report to the coordinator, or nothing if it is not recorded. Returns True if the attempt
# should stop.
Publish = Callable[[Report | None], bool]


class Reports(AttemptReport):
    """The `report` of one attempt: selects the reports to record, and publishes them.

    Of n reports, about `RECORDED_WHOLE` · (1 + ½ log₂(n / `RECORDED_WHOLE`)) are recorded: the
    first `RECORDED_WHOLE`, a decreasing share of the later ones, and the last one. The selection
    depends only on their number, so it is the same wherever the attempt runs.

    `folder` is the trial's own folder; None if the campaign provides none. `write_output` appends
    bytes to the attempt's output; None if no output is saved. `machine` is this machine if the
    attempt takes several, else None. `step_limit`: see `Attempt`. `kept` saves the reports for the
    next attempt. `trial` and `attempt` identify the attempt.
    """

    def __init__(
        self,
        publish: Publish | None = None,
        folder: Path | None = None,
        write_output: Callable[[bytes], None] | None = None,
        machine: Machine | None = None,
        step_limit: int | None = None,
        kept: KeptReports | None = None,
        trial: int = 0,
        attempt: int = 1,
    ) -> None:
        self.folder = folder
        self.write_output = write_output
        self.machine = machine
        self.is_stopped = False
        self.value_name = "value"  # the metric of a mapping that is the value
        self.last_value: float | None = None  # the newest finite value
        self._trial = trial
        self._attempt = attempt
        self._publish = publish
        self._kept = kept
        self._step_limit = math.inf if step_limit is None else step_limit
        self._recorded: list[Report] = []
        self._last: Report | None = None
        self._count = 0

    def __call__(
        self, /, value: float | Mapping[str, float], step: int | None = None, **metrics: float
    ) -> None:  # fmt: skip
        """Record `value`, which may be NaN or infinite, because a diverging training may report it. A
        mapping contains the value as `value_name`, and further metrics.

        Raises EvaluationStopped if the campaign stops this trial early, and InvalidValueError if
        `value` or one of `metrics` is not a number, or `step` is not a whole number up to 2⁵³.
        """
        if isinstance(value, Mapping):
            if self.value_name not in value:
                raise InvalidValueError(
                    f"a reported mapping must have {self.value_name!r}, the metric that the search "
                    f"optimizes (first), got {excerpt(value)}"
                )
            metrics = {**value, **metrics}
            value = metrics.pop(self.value_name)
        number = finite_or_not("a reported value", value)
        at = self._count if step is None else _whole_step(step)
        values = {self.value_name: number}
        if metrics:
            values |= _check_metrics(metrics)
        report = Report(self._trial, self._attempt, at, values)
        is_asked_to_stop = self._last is None and self._catch_up(at)
        self._last = report
        self.last_value = number if isfinite(number) else self.last_value
        stride = 1 << (self._count // RECORDED_WHOLE).bit_length()
        is_recorded = self._count % stride == 0
        self._count += 1
        if is_recorded and self._kept is not None:
            self._kept.add(report)
        is_asked_to_stop |= self._record(report if is_recorded else None)
        if self.is_stopped or is_asked_to_stop or at >= self._step_limit:
            self.is_stopped = True
            raise EvaluationStopped(f"stopped early at step {at}")

    def points(self) -> tuple[Report, ...]:
        """Return the recorded reports, in the order of reporting."""
        if self._last is None:  # the training had no steps left
            return () if self._kept is None else tuple(self._kept.missing())
        if self._recorded[-1] is self._last:
            return tuple(self._recorded)
        return (*self._recorded, self._last)

    def _catch_up(self, step: int) -> bool:
        """Report the steps before `step` that an earlier attempt reported and the log lacks.

        Return whether the attempt should stop.
        """
        is_asked_to_stop = False
        for report in [] if self._kept is None else self._kept.missing(step):
            is_asked_to_stop |= self._record(report)
        return is_asked_to_stop

    def _record(self, report: Report | None) -> bool:
        """Publish a report; with None, only ask whether the attempt should stop."""
        if report is not None:
            self._recorded.append(report)
        return self._publish is not None and self._publish(report)

    @property
    def last_step(self) -> int:
        """The step of the newest report; −1 before the first."""
        return -1 if self._last is None else self._last.step


def _whole_step(step: float) -> int:
    """Convert a step. Raises InvalidValueError if it is not a whole number up to 2⁵³."""
    number = finite_or_not("a step", step)
    if not number.is_integer() or abs(number) > LARGEST_STEP:
        raise InvalidValueError(
            f"a step must be a whole number of at most 2⁵³, got {number:g}: report takes the value first, "
            "report(value, step), with steps 1, 2, …"
        )
    return int(step)


def _check_metrics(metrics: dict[str, float]) -> dict[str, float]:
    """Convert the additional numbers of a report.

    Raises InvalidValueError for values that are not numbers, for too many of them, and for names
    that are too long.
    """
    numbers: dict[str, float] = {}
    for key, metric in metrics.items():
        name = printable(key)
        try:
            check_bounds(name, len(numbers))
        except InvalidValueError as error:
            raise InvalidValueError(f"a reported metric {name[:50]!r} cannot be recorded: {error}") from None
        numbers[name] = finite_or_not(f"the reported metric {name!r}", metric)
    return numbers
