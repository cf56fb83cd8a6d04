"""The settings of `early_stopping: {rule: model}` as the decisions read them."""

from dataclasses import dataclass

# After the first 60 trials, every twentieth is trained to its end whatever a rule says, so that a
# wrong belief is noticed. Each takes a whole training: with fewer trials, witnesses would take a
# tenth of the budget.
WITNESSES = 20
TRIALS_BEFORE_WITNESSES = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRule:
    """How `early_stopping: {rule: model}` treats trials, besides the comparison at rungs."""

    # the number of trials that are trained for a few steps before any is continued
    first_trials: int = 0
    first_steps: int = 0  # the number of these steps
    continues: bool = False  # whether stopped trials can be continued
    # whether they continue from their checkpoints; otherwise they restart from step 1
    has_checkpoints: bool = False
    finish: int = 0  # the number of unfinished trials that the last part of the budget completes
    last_step: int | None = None  # the step at which a training ends; None if it is not given
    # whether trials pause only at reliable steps, and new ones come first until they have used
    # their share of the steps (`starts`); False in logs of older versions
    balances_starts: bool = False
    # the number of stopped trials whose checkpoints are kept; None: all
    keep_checkpoints: int | None = None
    # whether the trials are members of a population, whose checkpoints new trials copy
    is_population: bool = False

    @property
    def restarts(self) -> bool:
        """Whether stopped trials are continued by a restart from step 1."""
        return self.continues and not self.has_checkpoints

    def is_witness(self, trial: int) -> bool:
        """Return whether the trial is trained to its end although a rule would stop it."""
        is_due = trial >= TRIALS_BEFORE_WITNESSES and trial % WITNESSES == WITNESSES - 1
        return is_due and not self.is_population

    def is_first_training(self, trial: int, is_continued: bool) -> bool:
        """Return whether the trial is trained for `first_steps` only."""
        return not is_continued and trial < self.first_trials
