"""The campaign's answers to a running training: stop or continue, and its next limit."""

import math

from orchestrator.campaign.state import CampaignState
from orchestrator.campaign.trainings.rule import EarlyStopping, StopCause


def stop_cause(state: CampaignState, trial: int) -> StopCause | None:
    """Return why the running `trial` is stopped after its reports in `state`; None: it continues."""
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
    """Return the step at which a worker ends the next attempt of `trial`; None: it has no limit."""
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


def _early_stopping(state: CampaignState) -> EarlyStopping:
    return EarlyStopping(state.rules.stopping, state.rules.training)
