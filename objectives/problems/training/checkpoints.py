"""The checkpoint of a training: its latest state in the trial's folder, written after each
epoch."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from objectives.machines import gives_value
from objectives.objective import HasFolder, Report
from objectives.trial import Trial

State = TypeVar("State")


class Checkpoints:
    """The checkpoints of one training. If the trial has no folder, none is written or read."""

    def __init__(self, report: Report, suffix: str) -> None:
        """Find the latest checkpoint.

        Args:
            report: the evaluation's `report`, which knows the trial's folder.
            suffix: the ending of the files' names.
        """
        has_folder = isinstance(report, HasFolder) and report.folder is not None
        self._trial = Trial(report) if has_folder else None
        self._suffix = suffix
        if self._trial is not None:
            # the training runs only in this process; any ranks in its environment belong to the
            # worker's launcher
            self._trial.is_first = gives_value(report)

    def restore(self, read: Callable[[Path], State]) -> State | None:
        """Return the result of `read` for the newest checkpoint; None without one, and for a damaged
        one, for which `read` raises: then with a warning, because the training begins anew.

        Raises the error of `read` if memory or the disk is at fault: the checkpoint may be good, and
        a training that begins anew would replace it.
        """
        if self._trial is None or self._trial.checkpoint is None:
            return None
        try:
            return read(self._trial.checkpoint)
        except (MemoryError, OSError):
            raise
        except Exception as error:  # a damaged file makes PyTorch and numpy raise many types
            warnings.warn(
                f"the training begins anew, because its checkpoint {self._trial.checkpoint} cannot be read: {error!r}",
                stacklevel=2,
            )
            return None

    def save(self, write: Callable[[str], object], epoch: int) -> None:
        """Call `write` with a path to save the state after `epoch` (counted from 1), then remove
        the previous checkpoint."""
        if self._trial is not None:
            self._trial.save(write, epoch, self._suffix)
