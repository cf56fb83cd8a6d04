"""The common part of the callbacks of XGBoost and LightGBM."""

import os

from objectives.objective import Report
from objectives.trial import Trial


class BoostedTrial:
    """A trial that trains by boosting. Its step is the number of rounds so far."""

    def __init__(
        self, metric: str, report: Report | None = None, folder: str | os.PathLike[str] | None = None, every: int = 1
    ) -> None:
        """Find the trial's checkpoint.

        Args:
            metric: data and metric as the library prints them, such as `validation-rmse`.
            report: the objective's argument `report`; None in a command, whose reports are printed.
            folder: the folder for checkpoints; None: the trial's folder, if it has one.
            every: the number of rounds between two reports and checkpoints. The last round is
                always reported.
        """
        self._trial = Trial(report, folder)
        self._metric = metric
        self._every = every
        self.step = self._trial.step
        self.checkpoint = self._trial.checkpoint and str(self._trial.checkpoint)
