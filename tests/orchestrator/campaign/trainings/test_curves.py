"""Tests of orchestrator/campaign/trainings/curves.py: checkpoints that are removed."""

from dataclasses import replace

from bbkb.orchestrator.campaign.commands import Ask, RemoveCheckpoints, Tell
from bbkb.orchestrator.campaign.events import CheckpointsRemoved, ComputingBegan
from bbkb.orchestrator.campaign.policy import decide
from bbkb.orchestrator.campaign.state import CampaignState
from bbkb.orchestrator.campaign.status import status_of
from bbkb.orchestrator.campaign.trainings import Forecast
from tests.orchestrator.campaign.short_logs import batch, dispatch, fold, fold_from, refresh, success
from tests.orchestrator.campaign.training_logs import continued, opened, paused, refreshed, started, stop


def keeps_one(*values: float, stalled: bool = False) -> CampaignState:
    """Trials 0 to 2 are stopped and learned, and a fourth one was stopped since; one checkpoint is
    to be kept."""
    rule = opened(None, finish=1, keep_checkpoints=1)
    state = fold(rule, *started(*values), *(stop(trial, value, 4) for trial, value in enumerate(values[:3])))
    forecasts = [Forecast(trial=trial, mean=value, low=0.0, high=value) for trial, value in enumerate(values[:3])]
    learned = replace(refreshed(*forecasts), trials=(0, 1, 2))
    waits = [replace(batch(4, []), limit=1, time=2.0)] * stalled
    refreshing = ComputingBegan(time=1.5, what="refreshing")
    return fold_from(state, refreshing, learned, *waits, stop(3, values[3], 4))


def test_checkpoint_of_a_trial_without_a_new_forecast_is_kept() -> None:
    state = keeps_one(0.1, 0.5, 0.9, 0.3, stalled=True)
    assert decide(state, 2.0) == RemoveCheckpoints((0, 1))


def test_strategy_learns_removed_checkpoints_before_it_chooses() -> None:
    """Also when a process dies after the event: the strategy of the next session would continue the
    trial for ever."""
    state = keeps_one(0.1, 0.5, 0.9, 0.3, stalled=True)
    removed = CheckpointsRemoved(time=2.0, trials=(0, 1))
    again = replace(opened(None), time=3.0, epoch=2)
    state = fold_from(state, removed, again)
    command = decide(state, 3.0)
    assert isinstance(command, Tell)
    began = ComputingBegan(time=3.5, what="refreshing")
    state = fold_from(state, began, refresh(3, time=4.0, round_=2))
    assert isinstance(decide(state, 4.0), Ask)


def test_last_gain_is_not_in_the_future_after_trials_continue() -> None:
    """A continued trial does not count as ended any more."""
    state = fold_from(paused(0.1, 0.5, 0.9, steps=None), batch(3, [20]), dispatch((3, 1)), success(3, 1.0))
    for campaign in (state, fold_from(state, continued(0, 1, 2, reason="finish"))):
        assert status_of("run", campaign, 2.0).model.last_gain == 0
