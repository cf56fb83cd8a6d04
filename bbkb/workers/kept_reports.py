"""The reports of a trial, stored in its folder beside the checkpoint.

If a process is killed, its last reports may not have reached the log. A training that continues
from a checkpoint does not repeat their steps, so the next attempt reports these values.
"""

import contextlib
import json
import math
from pathlib import Path

from bbkb.workers.messages import Report

FILE = ".reports"  # the file's name in the trial's folder


class KeptReports:
    """The reports of all attempts of a trial, for an attempt that adds to them.

    A file that cannot be read or written is ignored: it only fills gaps after a kill.
    """

    def __init__(self, folder: Path, trial: int, attempt: int, recorded_step: int) -> None:
        """Use the file in `folder`. `recorded_step` is the trial's largest step in the log."""
        self._file = folder / FILE
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
        draft = self._file.with_name(f"{FILE}.draft")
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
