"""Keras: `TrialCallback` for `model.fit`, with any backend."""

from collections.abc import Mapping
from typing import Any

from keras.callbacks import Callback

from bbkb.integrations.trial import CallbackTrial


class TrialCallback(CallbackTrial, Callback):
    """Reports a metric at the end of each epoch, stops the training with `model.stop_training`, and
    saves the weights and the optimizer's state in the trial's folder. The step is the number of
    epochs so far.

    `metric` is a key of the history of `fit`, such as `val_accuracy`.
    A continued trial loads its checkpoint when the training begins. Pass the epoch from which it
    continues to `fit`:

        model.fit(inputs, targets, epochs=20, initial_epoch=trial.step, callbacks=[trial])
    """

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """Load the checkpoint."""
        if self._trial.checkpoint is not None:
            self.model.load_weights(self._trial.checkpoint)

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Report, save, and set `stop_training` if the campaign stops the trial."""
        if self._trial.report(logs or {}, self._metric, epoch + 1):
            self.model.stop_training = True
        self._trial.save(self.model.save_weights, epoch + 1, ".weights.h5")
