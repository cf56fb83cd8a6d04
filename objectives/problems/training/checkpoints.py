"""The checkpoint of a training: its latest state, saved in the trial's folder after each epoch."""

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
        """Return the result of `read` for the newest checkpoint; None if there is none. If it is
        damaged (`read` raises), warn and return None, so that the training restarts.

        Raises the error of `read` if it is due to memory or the disk: the checkpoint may be intact,
        and a restarted training would replace it.
        """
        if self._trial is None or self._trial.checkpoint is None:
            return None
        try:
            return read(self._trial.checkpoint)
        except (MemoryError, OSError):
            raise
        except Exception as error:  # PyTorch and numpy raise many types for a damaged file
            warnings.warn(
                f"the training restarts, because its checkpoint {self._trial.checkpoint} cannot be read: {error!r}",
                stacklevel=2,
            )
            return None

    def save(self, write: Callable[[str], object], epoch: int) -> None:
        """Save the state after `epoch` (counted from 1) by calling `write` with a path, then remove
        the previous checkpoint."""
        if self._trial is not None:
            self._trial.save(write, epoch, self._suffix)
