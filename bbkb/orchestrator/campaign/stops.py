"""The decisions about trainings in steps: whether a running one is stopped, and why, the step at
which its worker ends it, and whether stopped ones may be continued."""

import math
from collections.abc import Mapping
from enum import StrEnum

from bbkb.orchestrator.bandit.results import Turn
from bbkb.orchestrator.campaign.state import CampaignState
from bbkb.orchestrator.campaign.training_rules import StoppingRule, TrainingRule

# the least correlation between the values at a reliable pause and the final ones
LEAST_RELIABILITY = 1 / 3
# the share of the steps so far that trials may use on their way to the first pause
SHARE_OF_STARTS = 1 / 3
# the largest share if the first pauses are not reliable, so that the values there tell little
LARGEST_SHARE_OF_STARTS = 1 / 2


class StopCause(StrEnum):
    """The cause for stopping a trial before its end. Logs contain these texts."""

    FIRST_TRAINING = "short first training"
    WORSE_THAN_OTHERS = "worse than other trials at this step"
    PAUSE = "paused: the strategy chooses which trials continue"
    FORECAST = "its expected end is worse than the best one"
    FINISH = "the remaining budget is for the best trials"
    SPENT = "the remaining budget completes no training"


def stop_words(cause: str) -> tuple[str, str]:
    """Return the word for a stop with this cause; a colon and the cause follow, if there is one."""
    word = "paused" if cause == StopCause.PAUSE else "stopped early"
    return word, cause and f": {cause.removeprefix(f'{word}: ')}"


def stop_cause(state: CampaignState, trial: int) -> StopCause | None:
    """Return why the running `trial` is stopped after its reports in `state`: the first reason that
    applies. None if the trial continues; it always does at its last step."""
    trainings = state.trainings
    stopping = state.settings.stopping
    rule = state.settings.training
    if stopping is None or trial not in state.running or trainings.is_at_end(trial, state.settings.last_step):
        return None
    at_rung = None
    if trainings.rungs.stops(stopping, trial):
        if stopping.share:
            at_rung = StopCause.WORSE_THAN_OTHERS
        elif trainings.step(trial) >= _first_pause(state):
            at_rung = StopCause.PAUSE
    if rule is None:
        return at_rung
    end = state.end_of_budget
    if end.stops_others and trial not in end.trials:
        return StopCause.FINISH
    if trial in end.out_of_reach:
        return StopCause.SPENT
    if rule.is_first_training(trial, trainings.continued):
        # the report that has reached the step, or is closer to it than the next, as far away as the previous one
        curve = trainings.curves.get(trial)
        if curve is None or not curve.steps:
            return None
        before, at, target = (0, *curve.steps)[-2], curve.steps[-1], rule.first_steps
        is_done = at >= target or target - at < abs(2 * at - before - target)
        return StopCause.FIRST_TRAINING if is_done else None
    if _ends_itself(state, rule, trial):
        return None
    # without the first condition, a continued trial would be stopped after one step and continued again
    if at_rung is not None or trial in trainings.continued:
        return at_rung
    is_reliable = trainings.step(trial) > _unreliable_steps(state, _first_pause(state))
    return StopCause.FORECAST if is_reliable and trainings.is_hopeless(trial, state.hopes) else None


def step_limit(state: CampaignState, trial: int) -> int | None:
    """Return the step at which a worker ends the next attempt of `trial` without being told to.

    It is the end of a short first training, or the trial's next pause. A stop known before the
    attempt starts then costs no further step, however slow the campaign is.

    Returns:
        None if the attempt ends only when it completes or is stopped by the campaign.
    """
    stopping = state.settings.stopping
    rule = state.settings.training
    if stopping is None or rule is None:
        return None
    if rule.is_first_training(trial, state.trainings.continued):
        return rule.first_steps
    if stopping.share or _ends_itself(state, rule, trial):
        return None
    pause = stopping.step_of_next_rung(max(state.trainings.step(trial), _first_pause(state) - 1))
    return pause if pause < (state.training_end or math.inf) else None


def cause_at_limit(state: CampaignState, trial: int) -> StopCause | None:
    """Return why a worker ended the running `trial` at its `step_limit`."""
    rule = state.settings.training
    if rule is None:
        return None
    is_first = rule.is_first_training(trial, state.trainings.continued)
    return StopCause.FIRST_TRAINING if is_first else StopCause.PAUSE


def _ends_itself(state: CampaignState, rule: TrainingRule, trial: int) -> bool:
    """Return whether `trial` is trained to its end, whatever its values.

    Until a trial has finished, the running one with the most steps does not pause, so that the last
    step of trainings becomes known. Otherwise a campaign might start new trials until its budget is
    spent, and complete none.
    """
    trainings = state.trainings
    if rule.is_witness(trial) or trial in trainings.completing or trial in state.end_of_budget.trials:
        return True
    if not rule.trains_whole or state.training_end is not None:
        return False
    return trial == max(state.running, key=lambda other: (trainings.step(other), -other), default=None)


def turn_of_stopped_trials(state: CampaignState) -> Turn:
    """Return whether the strategy may continue a stopped trial instead of starting a new one.

    Without checkpoints, stopped trials only restart, at the end of the budget. With a budget of
    steps, new trials come first until they have used `SHARE_OF_STARTS` on the way to the first
    pause. Otherwise the model may continue mediocre trials for long before it has seen a good one.
    If early pauses are not reliable, stopped trials come first as soon as new trials have used
    `LARGEST_SHARE_OF_STARTS`. Otherwise the model, to which noise looks like poor values, may only
    start new trials. If no pause is reliable, a new trial may be more promising than all stopped
    ones, whose values tell nothing.
    """
    rule = state.settings.training
    if rule is None:
        return Turn.BY_BOUND
    steps = state.trainings.steps
    pause = _first_pause(state)
    if pause and pause == rule.last_step:
        return Turn.BY_BOUND
    # a pause takes effect at the next report; 0 if all pauses count as reliable
    steps_before = (steps.next_report(pause) or pause) if pause else 0
    used = state.totals.chosen * steps_before
    if rule.restarts or 0 < used < SHARE_OF_STARTS * steps.total:
        return Turn.NEW_FIRST
    is_late = used > LARGEST_SHARE_OF_STARTS * steps.total
    return Turn.PAUSED_FIRST if is_late and _unreliable_steps(state, pause) > 0 else Turn.BY_BOUND


def first_learned_step(state: CampaignState) -> int:
    """Return the step from which on values are learned; 0 if all are. Values before the first
    reliable pause tell little about final ones: those of a flat curve are noise. The cautious
    estimate does not matter here, because it would omit useful values after few trainings."""
    pause = _first_pause(state, is_cautious=False)
    return pause if _unreliable_steps(state, pause) else 0


def _first_pause(state: CampaignState, *, is_cautious: bool = True) -> int:
    """Return the step of the first reliable pause. Return 0 if all pauses count as reliable, which
    is the case without a budget of steps and before the first refresh.

    `is_cautious`: whether to use the cautious estimate.
    """
    settings = state.settings
    rule = settings.training
    learned = state.refresh.learned
    if rule is None or learned is None or not rule.has_checkpoints:
        return 0
    steps = learned.cautious_steps if is_cautious else learned.steps
    if not (settings.budget.steps and settings.stopping and rule.last_step and steps):
        return 0
    return first_reliable_pause(settings.stopping, rule.last_step, dict(steps))


def _unreliable_steps(state: CampaignState, first_pause: int) -> int:
    """Return the number of steps before the first reliable pause; 0 if no pause is skipped."""
    stopping = state.settings.stopping
    if stopping is None:
        return 0
    return first_pause - 1 if first_pause > stopping.step_of_next_rung(0) else 0


def first_reliable_pause(rule: StoppingRule, last_step: int, reliability: Mapping[int, float]) -> int:
    """Return the step of the first reliable pause of `rule`; `last_step` if no pause is reliable.
    `reliability`: step → correlation; a pause that it does not contain counts as reliable."""
    pause = rule.step_of_next_rung(0)
    while pause < last_step and reliability.get(pause, 1.0) < LEAST_RELIABILITY:
        pause = rule.step_of_next_rung(pause)
    return min(pause, last_step)
