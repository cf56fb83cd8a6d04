"""The reports of a trial, stored in its folder beside the checkpoint.

If a process is killed, its last reports may not have reached the log. A training that continues
from a checkpoint does not repeat their steps, so the next attempt reports these values.
"""

import contextlib
import json
import math
from pathlib import Path

from bbkb.workers.messages import Reported

FILE = ".reports"  # the file's name in the trial's folder


class KeptReports:
    """The reports of all attempts of a trial, for an attempt that adds to them.

    A file that cannot be read or written is ignored: it only fills gaps after a kill.
    """

    def __init__(self, folder: Path, recorded_step: int) -> None:
        """Use the file in `folder`. `recorded_step` is the trial's largest step in the log."""
        self._file = folder / FILE
        self._recorded_step = recorded_step

    def add(self, reported: Reported) -> None:
        """Append a report."""
        with contextlib.suppress(OSError), self._file.open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(reported)}\n")

    def missing(self, before: float = math.inf) -> list[Reported]:
        """Return the reports that the log lacks, up to the step `before`, in the order of steps.

        All other reports are removed from the file.
        """
        try:
            lines = self._file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            return []
        by_step = {reported.step: reported for reported in map(_read, lines) if reported}
        steps = sorted(step for step in by_step if self._recorded_step < step < before)
        missing = [by_step[step] for step in steps]
        if len(missing) < len(lines):
            self._replace(missing)
        return missing

    def _replace(self, reports: list[Reported]) -> None:
        draft = self._file.with_name(f"{FILE}.draft")
        with contextlib.suppress(OSError):
            draft.write_text("".join(f"{json.dumps(one)}\n" for one in reports), encoding="utf-8")
            draft.replace(self._file)


def _read(line: str) -> Reported | None:
    """Return the report on a line; None if the process was killed while writing the line."""
    try:
        step, value, metrics = json.loads(line)
        numbers = tuple((str(name), float(number)) for name, number in metrics)
        return Reported(int(step), float(value), numbers)
    except (ValueError, TypeError):
        return None
