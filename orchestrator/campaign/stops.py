"""The campaign's decisions about trainings: whether a running one is stopped, its next limit, and
whether stopped ones may be continued."""

import math

from orchestrator.campaign.state import CampaignState
from orchestrator.campaign.trainings.rule import EarlyStopping, StopCause
from orchestrator.campaign.trainings.starts import SHARE_OF_STARTS, first_reliable_pause


def stop_cause(state: CampaignState, trial: int) -> StopCause | None:
    """Return why the running `trial` is stopped after its reports in `state`; None: not stopped."""
    if trial not in state.running:
        return None
    best = None if state.results.best is None else state.results.best.value
    return _early_stopping(state).cause_of_stop(
        state.trainings,
        trial,
        lambda trial: state.trainings.is_hopeless(trial, best, state.rules.sign),
        state.end_of_budget,
    )


def step_limit(state: CampaignState, trial: int) -> int | None:
    """Return the step at which a worker ends the next attempt of `trial`; None if unlimited."""
    steps_left = math.inf
    if state.rules.steps is not None:
        steps_left = state.rules.steps - state.trainings.steps.total
    return _early_stopping(state).step_limit(
        state.trainings,
        trial,
        running=len(state.running),
        steps_left=steps_left,
        plan=state.end_of_budget,
    )


def cause_at_limit(state: CampaignState, trial: int) -> StopCause | None:
    """Return why a worker ended the running `trial` at its `step_limit`."""
    return _early_stopping(state).cause_at_limit(state.trainings, trial)


def lets_stopped_trials_compete(state: CampaignState) -> bool:
    """Return whether the strategy may continue a stopped trial instead of starting a new one.

    Without checkpoints, stopped trials only restart, at the end of the budget. With a budget of
    steps, new trials come first until they have used `SHARE_OF_STARTS` on the way to the first
    pause. Otherwise the model may continue mediocre trials for long before it has seen a good one.
    """
    rule = state.rules.training
    if rule is None:
        return True
    pause = _first_pause(state)
    used = state.totals.chosen * pause
    is_start_due = pause > 0 and used < SHARE_OF_STARTS * state.trainings.steps.total
    return not (rule.restarts or is_start_due)


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


def _early_stopping(state: CampaignState) -> EarlyStopping:
    return EarlyStopping(state.rules.stopping, state.rules.training, _first_pause(state))
