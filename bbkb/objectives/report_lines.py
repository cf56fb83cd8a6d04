"""Intermediate values of a shell command: lines `BBKB_REPORT step value` on its standard output,
with further numbers as `name=number`, read while the command runs."""

import os
import signal
import threading
from contextlib import suppress

from bbkb.objectives.objective import EvaluationStopped, InvalidValueError, Report
from bbkb.objectives.returned import check_bounds

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
            self._report(float(value), int(step), **self._recordable(dict(map(_metric, named))))
        except ValueError as error:  # from a conversion; the line differs from trial to trial
            self.left_out.setdefault("a report", f"it must be `{_FORM}`: {error}")
        except EvaluationStopped as stopped:
            self._stopped = stopped
            self._signal(signal.SIGTERM)
            self._kill = threading.Timer(STOP_GRACE_SECONDS, self._signal, [signal.SIGKILL])
            self._kill.daemon = True
            self._kill.start()

    def _recordable(self, metrics: dict[str, float]) -> dict[str, float]:
        """Return the metrics that `report` accepts; the others are recorded in `left_out`."""
        recordable: dict[str, float] = {}
        for name, number in metrics.items():
            try:
                if name in ARGUMENTS:
                    raise InvalidValueError("an argument of report has this name")
                check_bounds(name, len(recordable))
                recordable[name] = number
            except InvalidValueError as error:
                self.left_out[f"reported {name}"] = str(error)
        return recordable

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._group, number)


def _metric(text: str) -> tuple[str, float]:
    """Parse `name=number`. Raises ValueError for anything else."""
    name, _, number = text.rpartition("=")
    if not name:
        raise ValueError(f"got {text!r}")
    return name, float(number)
