"""The strategy between ask and tell: its state, and its state after results not learned yet.

A refit costs more than a pick, and with hundreds of results, one more changes little. Results are
therefore collected, and learned together when `campaign.policy` decides that a refit is due. Until
then, the strategy treats their trials as pending.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from bbkb.orchestrator.ask_tell.memory import MemoryCampaign
from bbkb.orchestrator.bandit.arms import Arms
from bbkb.orchestrator.bandit.results import CurveUpdate
from bbkb.orchestrator.bandit.strategy import AnyStrategy, LearnsCurves, StrategyState, begin
from bbkb.orchestrator.campaign.events import ModelRefreshed
from bbkb.orchestrator.campaign.trainings.reports import Forecast, forecast_of
from bbkb.orchestrator.candidates.pool import Pool

INIT = 0  # streams of random numbers; saved optimizers depend on them
TELL = 1
BEGIN = 2
GROW = 3


def first_model(strategy: AnyStrategy, arms: Arms, seed: int) -> StrategyState:
    """Return the strategy's state before any result."""
    model: StrategyState = strategy.init(arms, np.random.default_rng([seed, INIT]))
    return model


class Learner:
    """A strategy, and its state `model` after some of the results of `campaign`."""

    def __init__(self, strategy: AnyStrategy, seed: int, model: StrategyState, campaign: MemoryCampaign) -> None:
        self.strategy = strategy
        self.seed = seed
        self.model = model
        self._campaign = campaign
        self._view = model  # the state after all results
        self._view_of: tuple[object, ...] = (None, None, None)  # the values from which it was computed

    def rng(self, *stream: int) -> np.random.Generator:
        """Return the generator of one stream of random numbers."""
        return np.random.default_rng([self.seed, *stream])

    @property
    def view(self) -> StrategyState:
        """The state after all results. Reading it has no effect."""
        state = self._campaign.state
        if not state.finished:
            return self.model
        model, finished, trainings = self._view_of
        if model is not self.model or finished is not state.finished or trainings is not state.trainings:
            rng = self.rng(TELL, self.model.round)
            self._view = self.strategy.tell(self.before, self._campaign.unlearned, rng)
            self._view_of = (self.model, state.finished, state.trainings)
        return self._view

    @property
    def before(self) -> StrategyState:
        """The state for the strategy's next `tell`, with the curves of all unlearned trials."""
        trainings = self._campaign.state.trainings
        if not trainings.curves or not isinstance(self.strategy, LearnsCurves):
            return self.model
        curves = tuple(trainings.curves.values())
        update = CurveUpdate(curves, sorted(trainings.paused), self._campaign.rules.last_step)
        state: StrategyState = self.strategy.with_curves(self.model, update)
        return state

    def learn(self, pool: Pool | None) -> ModelRefreshed:
        """Learn all results. Return the event that records it. `pool`: candidates that may grow."""
        existing = self._campaign.state.existing_observations
        self.model = begin(self.strategy, self.model, existing, self.rng(BEGIN)) if existing else self.view
        wants_growth = pool is not None and pool.demand(self.strategy, self.model) is not None
        return self.refreshed(self.strategy.recorded(self.model), wants_growth)

    def restore(self, record: Mapping[str, Any]) -> None:
        """Learn all results, with the drawn and fitted values of `record`."""
        observations = [*self._campaign.state.existing_observations, *self._campaign.unlearned]
        self.model = self.strategy.restore(self.before, observations, record)

    def refreshed(self, record: Mapping[str, Any], wants_growth: bool = False) -> ModelRefreshed:
        """Return the event that records a refresh. `record` describes the state after it."""
        state = self._campaign.state
        return ModelRefreshed(
            time=0.0,
            round=state.refresh.round + 1,
            trials=tuple(finished.trial for finished in state.finished),
            dictionary_size=len(self.model.dictionary),
            record=dict(record),
            seconds=0.0,
            wants_growth=wants_growth,
            forecasts=self._forecasts(),
        )

    def _forecasts(self) -> tuple[Forecast, ...]:
        """Return the forecasts of the running and paused trials that have reported."""
        state = self._campaign.state
        open_trials = state.running.keys() | state.trainings.paused.keys()
        trials = [trial for trial in state.trainings.curves if trial in open_trials]
        if not trials or state.rules.training is None or not isinstance(self.strategy, LearnsCurves):
            return ()
        return tuple(forecast_of(each, state.rules.sign) for each in self.strategy.predict_trials(self.model, trials))
