"""XGBoost: `TrialCallback` for `xgboost.train` and the classes with scikit-learn's interface."""

import os
from typing import Any

from xgboost import collective
from xgboost.callback import TrainingCallback

from objectives.objective import Report
from objectives.trial import Trial


class TrialCallback(TrainingCallback):
    """Reports a metric from the first process after each boosting round, stops the training with
    its return value, and saves a checkpoint in the trial's folder. The step is the number of rounds
    so far.

    A continued trial trains the remaining rounds from `checkpoint`:

        left = 100 - trial.step
        xgboost.train(parameters, data, left, xgb_model=trial.checkpoint, callbacks=[trial])
    """

    def __init__(
        self, metric: str, report: Report | None = None, folder: str | os.PathLike[str] | None = None, every: int = 1
    ) -> None:
        """Find the trial's checkpoint.

        Args:
            metric: data and metric as XGBoost prints them, such as `validation-rmse`.
            report: the objective's argument `report`; None in a command, whose reports are printed.
            folder: the folder for checkpoints; None: the trial's folder, if it has one.
            every: the number of rounds between two reports and checkpoints. The last round is
                always reported.
        """
        self._trial = Trial(report, folder)
        self._metric = metric
        self._every = every
        self._values: dict[str, float] = {}  # the metrics of the last round until they are reported
        self.step = self._trial.step
        self.checkpoint = self._trial.checkpoint and str(self._trial.checkpoint)

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Report and save. Return whether the training should end."""
        self._values = {f"{data}-{name}": log[-1] for data, logs in evals_log.items() for name, log in logs.items()}
        if model.num_boosted_rounds() % self._every:
            return False
        return self._report(model)

    def after_training(self, model: Any) -> Any:
        """Report and save after the last round, unless this was already done."""
        if self._values:
            self._report(model)
        return model

    def _report(self, model: Any) -> bool:
        values, self._values = self._values, {}
        self._trial.is_first, step = collective.get_rank() == 0, model.num_boosted_rounds()
        stops = self._trial.report(values, self._metric, step)
        self._trial.save(model.save_model, step, ".ubj")
        return bool(collective.broadcast(stops, 0))
