"""The strategy between ask and tell: its state, the results that it has learned, and its beliefs.

A refit costs more than a pick, and one more result changes little when there are hundreds. Results
are therefore collected and learned together when `campaign.policy` decides that a refit is due.
Until then, their trials remain pending for the strategy.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orchestrator.ask_tell.memory import MemoryCampaign
from orchestrator.bandit.model.model import model_of, scores_among
from orchestrator.bandit.observations import arms_and_rewards
from orchestrator.bandit.strategy import (
    AnyStrategy,
    EstimatesRewards,
    LearnsCurves,
    Observation,
    Posterior,
    Recommends,
    StrategyState,
    begin,
)
from orchestrator.campaign.events import ModelRefreshed
from orchestrator.campaign.hypervolume import Point, with_point
from orchestrator.campaign.trainings.reports import Forecast

INIT = 0  # streams of random numbers; saved optimizers depend on them
TELL = 1
BEGIN = 2
GROW = 3


class RewardSumError(ValueError):
    """The rewards of an arm add up to more than a float can hold."""

    def __init__(self, arm: int) -> None:
        super().__init__(f"the rewards of arm {arm} add up to more than a float can hold; divide all by a constant")
        self.arm = arm


class Learner:
    """A strategy and its state after some of the results of `campaign`."""

    def __init__(self, strategy: AnyStrategy, seed: int, model: StrategyState, campaign: MemoryCampaign) -> None:
        self.strategy = strategy
        self.seed = seed
        self.model = model
        self._campaign = campaign
        self._view = model  # the state after all results
        self._view_of: tuple[object, ...] = ()  # the values from which `_view` was computed
        self._sums: dict[int, tuple[float, ...]] = {}  # arm → sums of all its rewards, for arms with new results

    def rng(self, *stream: int) -> np.random.Generator:
        """Return the generator of one stream."""
        return np.random.default_rng([self.seed, *stream])

    def learn(self) -> ModelRefreshed:
        """Learn all results. Return the event, which the caller records."""
        existing = self._campaign.state.existing_observations
        self.model = begin(self.strategy, self.model, existing, self.rng(BEGIN)) if existing else self.view
        return self.refreshed(self.strategy.recorded(self.model))

    def restore(self, record: Mapping[str, Any]) -> None:
        """Learn all results with the drawn and fitted values of `record`."""
        observations = [*self._campaign.state.existing_observations, *self._campaign.unlearned]
        self.model = self.strategy.restore(self.before, observations, record)

    def refreshed(self, record: Mapping[str, Any]) -> ModelRefreshed:
        """Return the event that records a refresh. `record` describes the state after it."""
        state = self._campaign.state
        self._sums = {}
        return ModelRefreshed(
            time=0.0,
            round=state.refresh.round + 1,
            trials=tuple(finished.trial for finished in state.finished),
            dictionary_size=len(self.model.dictionary),
            record=dict(record),
            seconds=0.0,
            forecasts=self._forecasts(),
        )

    @property
    def view(self) -> StrategyState:
        """The state after all results. Reading it changes nothing."""
        state = self._campaign.state
        if not state.finished:
            return self.model
        view_of = (self.model, state.finished, state.trainings)
        if not self._view_of or any(new is not old for new, old in zip(view_of, self._view_of, strict=True)):
            rng = self.rng(TELL, self.model.round)
            self._view = self.strategy.tell(self.before, self._campaign.unlearned, rng)
            self._view_of = view_of
        return self._view

    @property
    def posterior(self) -> Posterior:
        """Mean, variance and upper bound of all arms (n,), after all results."""
        return self.strategy.posterior(self.view)

    def scores(self, rewards: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return `rewards` (n,) as the model uses them: as scores among the results under a
        calibrated model, otherwise unchanged. Raises ValueError before the first result."""
        if self.view.pulls.total == 0:
            raise ValueError("scores needs at least one result; call ask, evaluate, and call tell first")
        return scores_among(self.view.pulls, model_of(self.strategy), rewards)

    def best(self) -> tuple[int, float]:
        """Return the recommended arm and the mean of its rewards. At least one arm must have a
        final reward.

        The recommended arm has the largest mean reward, unless the strategy recommends another one
        because rewards are noisy.
        """
        pulls = self.view.pulls
        arms = pulls.finished_arms
        means = pulls.reward_sums[arms] / pulls.counts[arms]
        arm = self.recommended
        position = int(np.argmax(means)) if arm is None else int(np.searchsorted(arms, arm))
        return int(arms[position]), float(means[position])

    def front(self, objectives: int) -> list[tuple[int, Point]]:
        """Return the arms that satisfy all constraints and that no other arm dominates, with the
        mean rewards of the objectives and the numbers of rewards, starting with the best first
        objective."""
        pulls = self.view.pulls
        finished = pulls.finished_arms
        means = np.array([output.reward_sums[finished] / pulls.counts[finished] for output in pulls.outputs])
        feasible = np.flatnonzero((means[objectives:] >= 0.0).all(axis=0))
        arms: dict[Point, int] = {}
        for position in feasible.tolist():
            arms.setdefault(tuple(means[:objectives, position].tolist()), int(finished[position]))
        front: list[Point] = []
        for point in arms:
            front = with_point(front, point)
        return [(arms[point], point) for point in sorted(front, reverse=True)]

    @property
    def recommended(self) -> int | None:
        """The arm that the strategy recommends because rewards are noisy; None if they are not."""
        return self.strategy.recommend(self.view) if isinstance(self.strategy, Recommends) else None

    def estimate(self, arm: int) -> tuple[float, float] | None:
        """Return the expected reward of `arm` without noise, and its standard deviation; None if the
        strategy does not know it."""
        return self.strategy.estimate(self.view, arm) if isinstance(self.strategy, EstimatesRewards) else None

    def check_sums(self, observations: Sequence[Observation]) -> None:
        """Raise ValueError if the rewards of an arm, with those in `observations`, have no finite
        sum, of any objective or constraint."""
        arms_and_rewards(observations)
        sums: dict[int, tuple[float, ...]] = {}
        for observation in observations:
            if observation.reward is None:
                continue
            arm, rewards = observation.arm, (observation.reward, *observation.further)
            learned = (float(output.reward_sums[arm]) for output in self.model.pulls.outputs)
            before = sums.get(arm) or self._sums.get(arm) or learned
            sums[arm] = tuple(sum(pair) for pair in zip(before, rewards, strict=True))
            if not all(map(math.isfinite, sums[arm])):
                raise RewardSumError(arm)
        self._sums |= sums

    @property
    def before(self) -> StrategyState:
        """The state for the strategy's next `tell`, with the curves of all trials that run, are
        paused, or have ended since the previous `tell`."""
        trainings, rule = self._campaign.state.trainings, self._campaign.rules.training
        if not trainings.curves or not isinstance(self.strategy, LearnsCurves):
            return self.model
        last_step = None if rule is None else rule.last_step
        curves = tuple(trainings.curves.values())
        state: StrategyState = self.strategy.with_curves(self.model, curves, sorted(trainings.paused), last_step)
        return state

    def _forecasts(self) -> tuple[Forecast, ...]:
        """Return the forecasts of the running and paused trials that have reported."""
        state = self._campaign.state
        open_trials = [
            each for each in state.trainings.curves if each in state.running or each in state.trainings.paused
        ]
        if not open_trials or state.rules.training is None or not isinstance(self.strategy, LearnsCurves):
            return ()
        sign = state.rules.sign
        return tuple(
            Forecast(trial=each.trial, mean=sign * each.mean, low=sign * each.low, high=sign * each.high)
            for each in self.strategy.predict_trials(self.model, open_trials)
        )
