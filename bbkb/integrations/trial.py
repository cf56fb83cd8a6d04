"""For your own training loops: `Trial`, which reports intermediate values and writes
checkpoints; and the common part of the callbacks."""

import os

from bbkb.objectives.external import Trial
from bbkb.objectives.objective import Report

__all__ = ["Trial"]


class CallbackTrial:
    """The trial of a callback, with its step so far and its checkpoint.

    Args:
        metric: the metric to report, by its name in the library.
        report: the objective's argument `report`; None in a command, whose reports are printed.
        folder: the folder for checkpoints; None: the trial's folder, if it has one.
    """

    def __init__(self, metric: str, report: Report | None = None, folder: str | os.PathLike[str] | None = None) -> None:
        super().__init__()
        self._trial = Trial(report, folder)
        self._metric = metric
        self.step = self._trial.step
        self.checkpoint = self._trial.checkpoint and str(self._trial.checkpoint)


class BoostedTrial(CallbackTrial):
    """A trial that trains by boosting. Its step is the number of rounds so far.

    Args:
        metric: data and metric as the library prints them, such as `validation-rmse`.
        report: the objective's argument `report`; None in a command, whose reports are printed.
        folder: the folder for checkpoints; None: the trial's folder, if it has one.
        every: the number of rounds between two reports and checkpoints. The last round is always
            reported.
    """

    def __init__(
        self, metric: str, report: Report | None = None, folder: str | os.PathLike[str] | None = None, every: int = 1
    ) -> None:
        super().__init__(metric, report, folder)
        self._every = every
