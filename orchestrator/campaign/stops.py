"""The campaign's decisions about trainings: whether a running one is stopped, its next limit, and
whether stopped ones may be continued."""

from orchestrator.bandit.results import Turn
from orchestrator.campaign.state import CampaignState
from orchestrator.campaign.trainings.rule import EarlyStopping, StopCause
from orchestrator.campaign.trainings.starts import (
    LARGEST_SHARE_OF_STARTS,
    SHARE_OF_STARTS,
    first_reliable_pause,
)


def stop_cause(state: CampaignState, trial: int) -> StopCause | None:
    """Return why the running `trial` is stopped after its reports in `state`; None: not stopped."""
    if trial not in state.running:
        return None
    return _early_stopping(state).cause_of_stop(
        state.trainings,
        trial,
        lambda trial: state.trainings.is_hopeless(trial, state.hopes),
        state.end_of_budget,
    )


def step_limit(state: CampaignState, trial: int) -> int | None:
    """Return the step at which a worker ends the next attempt of `trial`; None if unlimited."""
    return _early_stopping(state).step_limit(state.trainings, trial, state.end_of_budget)


def cause_at_limit(state: CampaignState, trial: int) -> StopCause | None:
    """Return why a worker ended the running `trial` at its `step_limit`."""
    return _early_stopping(state).cause_at_limit(state.trainings, trial)


def turn_of_stopped_trials(state: CampaignState) -> Turn:
    """Return whether the strategy may continue a stopped trial instead of starting a new one.

    Without checkpoints, stopped trials only restart, at the end of the budget. With a budget of
    steps, new trials come first until they have used `SHARE_OF_STARTS` on the way to the first
    pause. Otherwise the model may continue mediocre trials for long before it has seen a good one.
    If early pauses are not reliable, stopped trials come first as soon as new trials have used
    `LARGEST_SHARE_OF_STARTS`. Otherwise the model, to which noise looks like poor values, may only
    start new trials.
    """
    rule = state.rules.training
    if rule is None:
        return Turn.BY_BOUND
    steps = state.trainings.steps.total
    first_pause = _first_pause(state)
    used = state.totals.chosen * first_pause
    if rule.restarts or 0 < used < SHARE_OF_STARTS * steps:
        return Turn.NEW_FIRST
    is_unreliable = _unreliable_steps(state, first_pause) > 0
    return Turn.PAUSED_FIRST if is_unreliable and used > LARGEST_SHARE_OF_STARTS * steps else Turn.BY_BOUND


def _first_pause(state: CampaignState) -> int:
    """Return the step of the first reliable pause. Return 0 if all pauses count as reliable, which
    is the case without a budget of steps and before the first refresh."""
    rules = state.rules
    rule = rules.training
    learned = state.refresh.learned
    if rule is None or learned is None or not (rule.balances_starts and rule.has_checkpoints):
        return 0
    if not (rules.steps and rules.stopping and rule.last_step and learned.steps):
        return 0
    return first_reliable_pause(rules.stopping, rule.last_step, dict(learned.steps))


def _unreliable_steps(state: CampaignState, first_pause: int) -> int:
    """Return the number of steps before the first reliable pause; 0 if no pause is skipped."""
    rules = state.rules
    if rules.stopping is None or rules.training is None or not rules.training.bounds_starts:
        return 0
    return first_pause - 1 if first_pause > rules.stopping.step_of_next_rung(0) else 0


def _early_stopping(state: CampaignState) -> EarlyStopping:
    first_pause = _first_pause(state)
    return EarlyStopping(
        state.rules.stopping,
        state.rules.training,
        first_pause,
        _unreliable_steps(state, first_pause),
        _pathfinder(state),
    )


def _pathfinder(state: CampaignState) -> int | None:
    """Return the trial that does not pause, so that the last step of trainings becomes known.

    It is the running trial with the most steps, until a trial has finished. Without it, a campaign
    might start new trials until its budget is spent, and complete none.
    """
    rule = state.rules.training
    if rule is None or rule.is_population or state.training_end is not None:
        return None
    return max(state.running, key=lambda trial: (state.trainings.step(trial), -trial), default=None)
