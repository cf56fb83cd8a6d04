"""Lightning: `TrialCallback` for `lightning.pytorch.Trainer`."""

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from bbkb.integrations.trial import CallbackTrial


class TrialCallback(CallbackTrial, Callback):
    """Reports a metric at the end of each validation, stops by `trainer.should_stop`, and saves a
    checkpoint in the trial's folder. The step is the number of validations so far, not counting the
    sanity check before the training. The first process reports.

    `metric` is a name that the module logs, such as `val_accuracy`.
    A continued trial starts from `checkpoint`:

        Trainer(max_epochs=20, callbacks=[trial]).fit(model, ckpt_path=trial.checkpoint)
    """

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Report in the first process, save in all, and stop all of them if the campaign stops the
        trial."""
        if trainer.sanity_checking or trainer.state.fn != "fit":
            return
        self.step += 1
        self._trial.is_first = trainer.is_global_zero
        stops = self._trial.report(trainer.callback_metrics, self._metric, self.step)
        self._trial.save(trainer.save_checkpoint, self.step, ".ckpt", all_write=True)
        trainer.should_stop = trainer.should_stop or bool(trainer.strategy.broadcast(stops))

    def state_dict(self) -> dict[str, Any]:
        """Return the callback's state for a checkpoint."""
        return {"step": self.step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the count of validations from a checkpoint."""
        self.step = state_dict["step"]
