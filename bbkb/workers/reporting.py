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
    value = finite_or_not("value", evaluation.value)
    if not isfinite(value):
        raise InvalidValueError(f"value must be a finite number, got {value}")
    returned: object = evaluation.metrics  # any object, returned by the objective
    if not isinstance(returned, Mapping):
        return CheckedResult(value, {}, f"metrics left out: they must be a mapping, got {type(returned).__name__}")
    metrics: dict[str, float] = {}
    left_out = [(str(name), why) for name, why in evaluation.left_out.items()]
    for key, metric in returned.items():
        name = printable(key)
        try:
            check_bounds(name, len(metrics))
            number = number_of(metric)
            if number is None or not isfinite(number):
                raise InvalidValueError(f"{type(metric).__name__}, not a finite number")
            metrics[name] = number
        except InvalidValueError as error:
            left_out.append((name, str(error)))
    if not left_out:
        return CheckedResult(value, metrics)
    listed = ", ".join(f"{shorten(name, NAME_CHARACTERS // 2)} ({why})" for name, why in left_out[:_NAMED])
    ending = f" and {len(left_out) - _NAMED} more" if len(left_out) > _NAMED else ""
    return CheckedResult(value, metrics, f"metrics left out: {listed}{ending}")


def shorten(text: str, length: int) -> str:
    """Return `text`, cut to at most `length` characters."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def printable(text: object) -> str:
    """Return `text` without lone surrogates and NUL, which databases and JSON writers reject."""
    return str(text).encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\x00")


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
    attempt takes several, else None. `step_limit`: see `Attempt`. `recorded_step` is the trial's largest
    step in the log; None if the folder does not keep the reports for the next attempt. `trial` and
    `attempt` identify the attempt.
    """

    def __init__(
        self,
        publish: Publish | None = None,
        folder: Path | None = None,
        write_output: Callable[[bytes], None] | None = None,
        machine: Machine | None = None,
        step_limit: int | None = None,
        recorded_step: int | None = None,
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
        self._kept = None if folder is None or recorded_step is None else folder / KEPT_REPORTS
        self._recorded_step = recorded_step or 0
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
        at = self._count
        if step is not None:
            whole = finite_or_not("a step", step)
            if not whole.is_integer() or abs(whole) > LARGEST_STEP:
                raise InvalidValueError(
                    f"a step must be a whole number of at most 2⁵³, got {whole:g}: report takes the value first, "
                    "report(value, step), with steps 1, 2, …"
                )
            at = int(step)
        values = {self.value_name: number}
        for key, metric in metrics.items():
            name = printable(key)
            try:
                check_bounds(name, len(values) - 1)
            except InvalidValueError as error:
                raise InvalidValueError(f"a reported metric {name[:50]!r} cannot be recorded: {error}") from None
            values[name] = finite_or_not(f"the reported metric {name!r}", metric)
        report = Report(self._trial, self._attempt, at, values)
        is_asked_to_stop = False
        if self._last is None:  # the steps that an earlier attempt reported and the log lacks
            for missing in self._missing(at):
                is_asked_to_stop |= self._record(missing)
        self._last = report
        self.last_value = number if isfinite(number) else self.last_value
        stride = 1 << (self._count // RECORDED_WHOLE).bit_length()
        is_recorded = self._count % stride == 0
        self._count += 1
        if is_recorded and self._kept is not None:
            with contextlib.suppress(OSError), self._kept.open("a", encoding="utf-8") as file:
                file.write(_line(report))
        is_asked_to_stop |= self._record(report if is_recorded else None)
        if self.is_stopped or is_asked_to_stop or at >= self._step_limit:
            self.is_stopped = True
            raise EvaluationStopped(f"stopped early at step {at}")

    def points(self) -> tuple[Report, ...]:
        """Return the recorded reports, in the order of reporting."""
        if self._last is None:  # the training had no steps left
            return tuple(self._missing())
        if self._recorded[-1] is self._last:
            return tuple(self._recorded)
        return (*self._recorded, self._last)

    def _missing(self, before: float = math.inf) -> list[Report]:
        """Return the kept reports that the log lacks, up to the step `before`, in the order of steps.

        All other reports are removed from the file. A file that cannot be read or written is ignored: it only
        fills gaps after a kill.
        """
        if self._kept is None:
            return []
        try:
            lines = self._kept.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            return []
        by_step: dict[int, dict[str, float]] = {}
        for line in lines:
            with contextlib.suppress(ValueError, TypeError, AttributeError):  # the process was killed while writing it
                step, values = json.loads(line)
                by_step[int(step)] = {str(name): float(number) for name, number in values.items()}
        steps = sorted(step for step in by_step if self._recorded_step < step < before)
        missing = [Report(self._trial, self._attempt, step, by_step[step]) for step in steps]
        if len(missing) < len(lines):
            draft = self._kept.with_name(f"{KEPT_REPORTS}.draft")
            with contextlib.suppress(OSError):
                draft.write_text("".join(map(_line, missing)), encoding="utf-8")
                draft.replace(self._kept)
        return missing

    def _record(self, report: Report | None) -> bool:
        """Publish a report; with None, only ask whether the attempt should stop."""
        if report is not None:
            self._recorded.append(report)
        return self._publish is not None and self._publish(report)

    @property
    def last_step(self) -> int:
        """The step of the newest report; −1 before the first."""
        return -1 if self._last is None else self._last.step


def _line(report: Report) -> str:
    return f"{json.dumps([report.step, dict(report.values)])}\n"
