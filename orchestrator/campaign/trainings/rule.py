"""The causes for stopping a running trial, and the step at which its worker ends an attempt."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.campaign.trainings.curves import Trainings
from orchestrator.campaign.trainings.end_of_budget import ENOUGH, Completes, EndOfBudget, Hopeless
from orchestrator.campaign.trainings.model_rule import TrainingRule
from orchestrator.campaign.trainings.rungs import StoppingRule


class StopCause(StrEnum):
    """The cause for stopping a trial before its end. Logs contain these texts."""

    FIRST_TRAINING = "short first training"
    WORSE_THAN_OTHERS = "worse than other trials at this step"
    PAUSE = "paused: the model chooses which trial goes on"
    POPULATION = "paused: compared with the other members of the population"
    FORECAST = "its expected end is worse than the best one"
    FINISH = "the rest of the budget is for the best trials"
    SPENT = "the rest of the budget completes no training"


# the texts that are displayed in place of those in logs
_DISPLAYED: Mapping[str, str] = {
    StopCause.PAUSE: "paused: the model chooses which trials continue",
    StopCause.FINISH: "the remaining budget is for the best trials",
    StopCause.SPENT: "the remaining budget completes no training",
}


def stop_words(cause: str) -> tuple[str, str]:
    """Return the word for a stop with this cause; a colon and the cause follow, if there is one."""
    is_pause = cause in (StopCause.PAUSE, StopCause.POPULATION)
    word = "paused" if is_pause else "stopped early"
    shown = _DISPLAYED.get(cause, cause)
    return word, cause and f": {shown.removeprefix(f'{word}: ')}"


@dataclass(frozen=True, slots=True)
class EarlyStopping:
    """The rules by which a campaign or an optimizer stops trials.

    `rungs` compares trials or pauses them; None: no trial is stopped. `model` adds short first
    trainings, forecasts and witnesses; None: only the comparison at rungs. No trial pauses before
    `first_pause`, a step. Forecasts of trials that have not passed `unreliable_steps` stop none.
    `pathfinder` is a trial that is trained to its end because the last step is unknown.
    """

    rungs: StoppingRule | None = None
    model: TrainingRule | None = None
    first_pause: int = 0
    unreliable_steps: int = 0
    pathfinder: int | None = None

    def cause_of_stop(
        self,
        trainings: Trainings,
        trial: int,
        is_hopeless: Callable[[int], bool],
        plan: EndOfBudget = ENOUGH,
    ) -> StopCause | None:
        """Return why the running `trial` is stopped after its reports in `trainings`.

        Args:
            trainings: the facts.
            trial: a running trial.
            is_hopeless: returns whether even the optimistic forecast of a trial is worse than the
                best results; called only if no other rule decides.
            plan: the trials that the remaining budget is reserved for.

        Returns:
            Return None if the trial continues; it always does at its last step.
        """
        last_step = None if self.model is None else self.model.last_step
        if self.rungs is None or trainings.is_at_end(trial, last_step):
            return None
        at_rung = self._cause_at_rung(trainings, trial)
        if self.model is None:
            return at_rung
        if (at_end := _cause_at_end_of_budget(plan, trial)) is not None:
            return at_end
        if self.model.is_first_training(trial, trial in trainings.continued):
            return _cause_of_first_training(trainings, trial, self.model.first_steps)
        if self._ends_itself(trainings, plan, trial):
            return None
        if at_rung is not None or not self._trusts_forecast(trainings, trial):
            return at_rung
        return StopCause.FORECAST if is_hopeless(trial) else None

    def _trusts_forecast(self, trainings: Trainings, trial: int) -> bool:
        """Return whether the forecast of `trial` may stop it now.

        A continued trial is not stopped by its forecast before its next pause. Otherwise it would
        be stopped after one step and continued again.
        """
        return trial not in trainings.continued and trainings.step(trial) > self.unreliable_steps

    def _cause_at_rung(self, trainings: Trainings, trial: int) -> StopCause | None:
        if self.rungs is None or not trainings.rungs.stops(self.rungs, trial):
            return None
        if self.rungs.share:
            return StopCause.WORSE_THAN_OTHERS
        return self._pause if trainings.step(trial) >= self.first_pause else None

    def step_limit(
        self,
        trainings: Trainings,
        trial: int,
        plan: EndOfBudget = ENOUGH,
    ) -> int | None:
        """Return the step at which a worker ends the next attempt of `trial` without being told to.

        It is the end of a short first training, or the trial's next pause. A stop known before the
        attempt starts then costs no further step, however slow the campaign is.

        Args:
            trainings: the facts.
            trial: the trial.
            plan: the trials that the remaining budget is reserved for.

        Returns:
            Return None if the attempt ends only when it completes or is stopped by the campaign.
        """
        if self.rungs is None or self.model is None:
            return None
        if self.model.is_first_training(trial, trial in trainings.continued):
            return self.model.first_steps
        is_compared = bool(self.rungs.share)
        if is_compared or self._ends_itself(trainings, plan, trial):
            return None
        pause = self.rungs.step_of_next_rung(max(trainings.step(trial), self.first_pause - 1))
        return pause if pause < (trainings.end(self.model.last_step) or math.inf) else None

    def cause_at_limit(self, trainings: Trainings, trial: int) -> StopCause | None:
        """Return why a worker ended the running `trial` at its `step_limit`."""
        if self.model is None:
            return None
        is_first = self.model.is_first_training(trial, trial in trainings.continued)
        return StopCause.FIRST_TRAINING if is_first else self._pause

    def _ends_itself(self, trainings: Trainings, plan: EndOfBudget, trial: int) -> bool:
        """Return whether `trial` is trained to its end, whatever its values."""
        is_witness = self.model is not None and self.model.is_witness(trial)
        is_completing = trial in trainings.completing or trial in plan.trials
        return is_witness or is_completing or trial == self.pathfinder

    @property
    def _pause(self) -> StopCause:
        is_population = self.model is not None and self.model.is_population
        return StopCause.POPULATION if is_population else StopCause.PAUSE


def _cause_at_end_of_budget(plan: EndOfBudget, trial: int) -> StopCause | None:
    match plan:
        case Completes(trials, stops_others=True) if trial not in trials:
            return StopCause.FINISH
        case Hopeless(out_of_reach) if trial in out_of_reach:
            return StopCause.SPENT
    return None


def _cause_of_first_training(trainings: Trainings, trial: int, steps: int) -> StopCause | None:
    curve = trainings.curves.get(trial)
    is_done = curve is not None and _is_nearest_report(curve.steps, steps)
    return StopCause.FIRST_TRAINING if is_done else None


def _is_nearest_report(steps: Sequence[int], target: int) -> bool:
    """Return whether the last of `steps` has reached `target` or is closer to it than the next.

    The distance to the next report is assumed to be that from the previous one.
    """
    if not steps:
        return False
    at = steps[-1]
    before = steps[-2] if len(steps) > 1 else 0
    return at >= target or target - at < abs(2 * at - before - target)
