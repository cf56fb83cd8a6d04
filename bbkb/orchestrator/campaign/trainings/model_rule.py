"""The settings of `early_stopping: {rule: model}`, in the form used by the decisions."""

from collections.abc import Container
from dataclasses import dataclass

from bbkb.orchestrator.campaign.trainings.rungs import StoppingRule

# After the first 60 trials, every twentieth is a witness, which is trained to its end whatever a
# rule says, so that a wrong belief of the model is noticed. Each witness takes a whole training:
# with fewer trials, witnesses would take a tenth of the budget.
WITNESSES = 20
TRIALS_BEFORE_WITNESSES = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRule:
    """How `early_stopping: {rule: model}` treats trials, besides the comparison at rungs."""

    # the number of trials that are trained for a few steps before any trial is continued
    first_trials: int = 0
    first_steps: int = 0  # the number of these steps
    continues: bool = False  # whether stopped trials can be continued
    # whether they continue from their checkpoints; otherwise they restart from step 1
    has_checkpoints: bool = False
    finish: int = 0  # the number of unfinished trials to complete with the last part of the budget
    last_step: int | None = None  # the step at which a training ends; None if it is not given
    # the number of stopped trials whose checkpoints are kept; None: all
    keep_checkpoints: int | None = None
    # whether some trials are trained to their ends whatever their values are: witnesses, and the
    # most trained one until a training has ended
    trains_whole: bool = True
    # whether a checkpoint is saved at each pause, from which new trials may start
    saves_checkpoints: bool = False

    def stopping(self, after: int) -> StoppingRule:
        """Return the comparison at rungs. Trials with checkpoints pause at ½, ¼, … of a training;
        others are compared with the median. `after`: the first possible step."""
        if self.has_checkpoints:
            return StoppingRule.pauses(after, self.last_step)
        return StoppingRule.median(after)

    @property
    def restarts(self) -> bool:
        """Whether a stopped trial restarts from step 1 when it is continued."""
        return self.continues and not self.has_checkpoints

    def is_witness(self, trial: int) -> bool:
        """Return whether the trial is trained to its end although a rule would stop it."""
        is_due = trial >= TRIALS_BEFORE_WITNESSES and trial % WITNESSES == WITNESSES - 1
        return is_due and self.trains_whole

    def is_first_training(self, trial: int, continued: Container[int]) -> bool:
        """Return whether the trial is trained only for `first_steps`. `continued`: trials."""
        return trial < self.first_trials and trial not in continued
