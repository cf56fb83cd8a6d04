"""Hugging Face Transformers: `TrialCallback` for `transformers.Trainer`."""

from pathlib import Path
from typing import Any

import torch.distributed
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from bbkb.integrations.trial import CallbackTrial


class TrialCallback(CallbackTrial, TrainerCallback):
    """Reports a metric from the first process after each evaluation, stops the training with
    `control.should_training_stop`, and moves the Trainer's checkpoint into the trial's folder,
    which must be on the same disk as `output_dir`. The step is the number of evaluations.

    `metric` is a key of the metrics that `Trainer.evaluate` returns, such as `eval_loss`.
    A continued trial starts from `checkpoint`:

        Trainer(..., callbacks=[trial]).train(resume_from_checkpoint=trial.checkpoint)
    """

    _metrics: Any = None  # the metrics of the evaluation that has not been reported yet

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, metrics: Any = None, **_: Any
    ) -> None:
        """Report if the trial has no folder; otherwise `on_save` does, with the checkpoint."""
        self._metrics = metrics
        self._trial.is_first = state.is_world_process_zero
        if self._trial.folder is None:
            self._report(state, control)
        control.should_save = self._trial.folder is not None

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Report, and move the checkpoint into the trial's folder."""
        if self._metrics is not None:
            self._report(state, control)
            self._trial.keep(Path(args.output_dir, f"checkpoint-{state.global_step}"), self.step)

    def _report(self, state: TrainerState, control: TrainerControl) -> None:
        """Report in the first process, and stop all processes if the campaign stops the trial."""
        self.step += 1
        metrics, self._metrics = self._metrics, None
        stops = [self._trial.report(metrics or {}, self._metric, self.step)]
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.broadcast_object_list(stops)
        control.should_training_stop = control.should_training_stop or stops[0]
