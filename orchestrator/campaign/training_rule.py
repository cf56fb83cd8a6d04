"""The rule of `early_stopping: {rule: model}`: which running trial is stopped, and why."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.campaign.early_stopping import Rungs, StoppingRule

# After the first 60 trials every twentieth is trained on whatever a rule says, so that a wrong belief is noticed. Each
# takes a whole training: with fewer trials they would take a tenth of a budget.
WITNESSES = 20
TRIALS_BEFORE_WITNESSES = 60


class StopCause(StrEnum):
    """Why a trial is stopped before its end."""

    FIRST_TRAINING = "short first training"
    WORSE_THAN_OTHERS = "worse than other trials at this step"
    PAUSE = "paused: the model chooses which trial goes on"
    FORECAST = "its expected end is worse than the best one"
    FINISH = "the rest of the budget is for the best trials"
    SPENT = "the rest of the budget completes no training"


def cause_at_rung(rule: StoppingRule, rungs: Rungs, trial: int) -> StopCause | None:
    """Return why the rule of the rungs stops a trial; None: it goes on."""
    if not rungs.stops(rule, trial):
        return None
    return StopCause.WORSE_THAN_OTHERS if rule.share else StopCause.PAUSE


def stop_words(cause: str) -> tuple[str, str]:
    """Return what a stop for `cause` is called, and the cause after a colon; nothing without one."""
    word = "paused" if cause == StopCause.PAUSE else "stopped early"
    return word, cause and f": {cause.removeprefix(f'{word}: ')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRule:
    """How `early_stopping: {rule: model}` treats trials, besides the comparison at steps."""

    # how many trials are trained for a few steps only, before any is continued; 0: none
    first_trials: int = 0
    first_steps: int = 0  # how many steps these are
    continues: bool = False  # whether a stopped trial can be continued from its checkpoint
    restarts: bool = False  # whether a stopped trial can be trained again from its first step
    finish: int = 0  # how many of the best unfinished trials are completed at the end of the budget
    last_step: int | None = None  # the step at which a training ends; None where it is not given
    keep_checkpoints: int | None = None  # of how many stopped trials the checkpoints are kept; None: of all

    @property
    def resumes(self) -> bool:
        """Whether a stopped trial can be taken up, from its checkpoint or from its first step."""
        return self.continues or self.restarts

    @staticmethod
    def is_witness(trial: int) -> bool:
        """Return whether the trial is trained on although a rule would stop it."""
        return trial >= TRIALS_BEFORE_WITNESSES and trial % WITNESSES == WITNESSES - 1

    def is_first_training(self, trial: int, is_continued: bool) -> bool:
        """Return whether the trial is trained for `first_steps` only."""
        return not is_continued and trial < self.first_trials

    def cause_of_stop(
        self,
        trial: int,
        steps: Sequence[int],
        *,
        is_continued: bool,
        at_rung: StopCause | None,
        is_hopeless: Callable[[], bool],
        is_finishing: bool = False,
    ) -> StopCause | None:
        """Return why a running trial is stopped; None: it goes on.

        Args:
            trial: its number.
            steps: at which it has reported, ascending; those of its curve will do.
            is_continued: whether it was stopped before.
            at_rung: why the rule of its rungs stops it, if it does.
            is_hopeless: says whether even its optimistic forecast is worse than the best value.
            is_finishing: whether it was continued to complete the best ones.
        """
        if self.is_first_training(trial, is_continued):
            return StopCause.FIRST_TRAINING if steps and _is_nearest_report(steps, self.first_steps) else None
        if self.is_witness(trial) or is_finishing:
            return None
        if at_rung is not None:
            return at_rung
        # one that was continued goes on to its next pause: else it is stopped after a step, and chosen again
        return StopCause.FORECAST if not is_continued and is_hopeless() else None


def _is_nearest_report(steps: Sequence[int], target: int) -> bool:
    """Return whether the last of `steps` is `target` or beyond it, or nearer to it than the next
    report, which is expected to be as far away as the one before."""
    at, before = steps[-1], steps[-2] if len(steps) > 1 else 0
    return at >= target or target - at < abs(2 * at - before - target)
