"""Training in epochs, with a checkpoint in the trial's folder after each epoch."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from bbkb.objectives.machines import folder_of, gives_value
from bbkb.objectives.objective import Report
from bbkb.objectives.trial import Trial


class Trained(Protocol):
    """The state of a training after `epoch` epochs, with the accuracy on the validation rows."""

    epoch: int
    accuracy: float

    def save(self, path: str) -> None:
        """Write a checkpoint."""


State = TypeVar("State", bound=Trained)


def train_in_epochs(
    report: Report,
    suffix: str,
    begin: Callable[[], State],
    read: Callable[[Path], State],
    advance: Callable[[State], bool],
    epochs: int,
) -> State:
    """Train to the end of the last epoch, or until the training diverges. Report the accuracy after
    each epoch.

    The training continues from the newest checkpoint in the trial's folder. Its epoch is reported
    again, because the report may have been lost. If the trial has no folder, no checkpoint is
    written or read.

    Args:
        report: the evaluation's `report`, which knows the trial's folder.
        suffix: the ending of the names of checkpoints.
        begin: returns an untrained state, also if a checkpoint is damaged.
        read: returns the state in a checkpoint. Raises any error if it is damaged.
        advance: trains for one epoch, and returns False if the training has diverged.
        epochs: the number of the last epoch, >= 1.
    """
    trial = None if folder_of(report) is None else Trial(report)
    training = None
    if trial is not None:
        # the training runs only in this process; any ranks in its environment belong to the
        # worker's launcher
        trial.is_first = gives_value(report)
        training = None if trial.checkpoint is None else _restore(trial.checkpoint, read)
    if training is None:
        training = begin()
    else:
        report(training.accuracy, step=training.epoch)
    while training.epoch < epochs and advance(training):
        if trial is not None:
            trial.save(training.save, training.epoch, suffix)
        report(training.accuracy, step=training.epoch)
    return training


def _restore(checkpoint: Path, read: Callable[[Path], State]) -> State | None:
    """Return the state in a checkpoint. If it is damaged, warn and return None, so that the
    training restarts.

    Raises the error of `read` if it is due to memory or the disk: the checkpoint may be intact, and
    a restarted training would replace it.
    """
    try:
        return read(checkpoint)
    except (MemoryError, OSError):
        raise
    except Exception as error:  # PyTorch and numpy raise many types for a damaged file
        message = f"the training restarts, because its checkpoint {checkpoint} cannot be read"
        warnings.warn(f"{message}: {error!r}", stacklevel=2)
        return None
