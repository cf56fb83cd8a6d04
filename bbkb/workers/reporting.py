"""The intermediate values of an attempt: the function `report` for objectives, which raises if the
trial is stopped."""

import math
from collections.abc import Callable, Mapping
from math import isfinite  # bound here, as in `bbkb.workers.results`
from pathlib import Path

from bbkb.objectives.machines import AttemptReport, Machine
from bbkb.objectives.objective import EvaluationStopped, InvalidValueError
from bbkb.objectives.returned import check_bounds
from bbkb.workers.kept_reports import KeptReports
from bbkb.workers.messages import Report
from bbkb.workers.results import excerpt, finite_or_not, printable

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
