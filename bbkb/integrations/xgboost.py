"""XGBoost: `TrialCallback` for `xgboost.train` and the classes with scikit-learn's interface."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from xgboost import collective
from xgboost.callback import TrainingCallback

from bbkb.integrations.trial import BoostedTrial


class TrialCallback(BoostedTrial, TrainingCallback):
    """Reports a metric from the first process after each boosting round, stops the training with
    its return value, and saves a checkpoint in the trial's folder. The step is the number of rounds
    so far.

    A continued trial trains the remaining rounds from `checkpoint`:

        left = 100 - trial.step
        xgboost.train(parameters, data, left, xgb_model=trial.checkpoint, callbacks=[trial])
    """

    _values: Mapping[str, float] = MappingProxyType({})  # of the last round until they are reported

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
