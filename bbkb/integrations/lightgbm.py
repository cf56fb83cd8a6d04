"""LightGBM: `TrialCallback` for `lightgbm.train` and the classes with scikit-learn's interface."""

from lightgbm.callback import CallbackEnv, EarlyStopException

from bbkb.integrations.trial import BoostedTrial


class TrialCallback(BoostedTrial):
    """Reports a metric after each boosting round, stops by LightGBM's exception for early stopping,
    and saves a checkpoint in the trial's folder. The step is the number of rounds so far.

    A continued trial trains the remaining rounds from `checkpoint`:

        left = 100 - trial.step
        lightgbm.train(parameters, data, left, init_model=trial.checkpoint, callbacks=[trial])
    """

    order = 25  # run after the library's callbacks that print and record
    before_iteration = False

    def __call__(self, env: CallbackEnv) -> None:
        """Report, save, and raise EarlyStopException if the campaign stops the trial."""
        step = env.iteration + 1
        results = env.evaluation_result_list or []
        if step % self._every and step != env.end_iteration:
            return
        values = {f"{data}-{name}": value for data, name, value, *_ in results}
        stops = self._trial.report(values, self._metric, step)
        self._trial.save(env.model.save_model, step, ".txt")
        if stops:
            raise EarlyStopException(env.iteration, results)
