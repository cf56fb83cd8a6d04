"""The results of a search as `TrialResult`, on the user's scale."""

from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bbkb.objectives.conditions import Scalar
from bbkb.orchestrator.ask_tell.search import ArmResult, Search
from bbkb.orchestrator.bandit.model.model import model_of, scores_among
from bbkb.orchestrator.bandit.pulls import bounded
from bbkb.orchestrator.bandit.strategy import EstimatesRewards, Recommends
from bbkb.orchestrator.campaign.hypervolume import Point, with_point
from bbkb.orchestrator.campaign.trial_result import TrialResult, Trials, metrics_with_first


class Results:
    """The trials of a search; the best one and the front are determined with the model. Messages
    call a value `noun`."""

    def __init__(self, search: Search, noun: str) -> None:
        self._search = search
        self._goals = search.state.settings.goals
        self._noun = noun

    @property
    def _model(self) -> Any:
        return self._search.view

    @property
    def trials(self) -> Trials:
        """All results, in the order of their arrival."""
        return tuple(self._trial(result) for result in self._search.results)

    @property
    def best(self) -> TrialResult:
        """The recommended trial: the arm with the largest mean reward, unless the strategy recommends
        a different one because rewards are noisy. Raises ValueError if there is none."""
        if not self._goals.is_single:
            return self._first_of_front("best")
        self._check_any("best")
        strategy = self._search.strategy
        model = self._model
        pulls = model.pulls
        arm = strategy.recommend(model) if isinstance(strategy, Recommends) else None
        belief = None
        if arm is None:
            means = pulls.reward_sums[pulls.finished_arms] / pulls.counts[pulls.finished_arms]
            arm = int(pulls.finished_arms[np.argmax(means)])
        elif isinstance(strategy, EstimatesRewards):
            belief = strategy.estimate(model, arm)
        value = self._goals.value
        best = self._mean(arm, value(float(pulls.reward_sums[arm] / pulls.counts[arm])), {})
        return best if belief is None else replace(best, estimate=value(belief[0]), deviation=belief[1])

    @property
    def best_observed(self) -> TrialResult:
        """The trial with the best single value. Raises ValueError if there is none."""
        if not self._goals.is_single:
            return self._first_of_front("best_observed")
        self._check_any("best_observed")
        results = [(self._goals.reward(each.value), each) for each in self._search.results if each.value is not None]
        return self._trial(max(results, key=lambda pair: pair[0])[1])

    def _first_of_front(self, name: str) -> TrialResult:
        self._check_any(name)
        if front := self.front:
            return front[0]
        raise ValueError("no configuration with a result satisfies all constraints")

    def _check_any(self, name: str) -> None:
        if not len(self._model.pulls.finished_arms):
            raise ValueError(f"{name} needs at least one {self._noun}; call ask, evaluate, and call tell first")

    @property
    def front(self) -> Trials:
        """The trials that satisfy all constraints and that no other trial dominates, with mean
        values, sorted by the first objective, the best first."""
        objectives = self._goals.objectives
        pulls = self._model.pulls
        finished = pulls.finished_arms
        means = np.array([output.reward_sums[finished] / output.counts[finished] for output in pulls.outputs])
        feasible = np.flatnonzero((means[len(objectives) :] >= 0.0).all(axis=0))
        arms: dict[Point, int] = {}
        front: list[Point] = []
        for position in feasible.tolist():
            point = tuple(means[: len(objectives), position].tolist())
            if point not in arms:
                arms[point] = int(finished[position])
                front = with_point(front, point)
        return tuple(self._member(arms[point], point) for point in sorted(front, reverse=True))

    @property
    def facts(self) -> list[tuple[str, str]]:
        """The number of results and the best result, for a table."""
        search = self._search
        facts = [(f"{self._noun}s", str(len(search.results))), ("pending", str(len(search.pending)))]
        if self.front:
            best = self.best
            listed = ", ".join(f"{name}={setting!r}" for name, setting in best.parameters.items())
            facts += [(f"best {self._noun}", f"{best.value:.6g}"), ("best parameters", listed)]
        return facts

    def scores(self, rewards: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return `rewards` (n,) as for the model: as scores relative to the results under a
        calibrated model, otherwise unchanged. Raises ValueError before the first result."""
        pulls = self._model.pulls
        if pulls.total == 0:
            raise ValueError("scores needs at least one result; call ask, evaluate, and call tell first")
        return scores_among(pulls, model_of(self._search.strategy), rewards)

    def _trial(self, result: ArmResult) -> TrialResult:
        value = result.value
        return TrialResult(
            trial=result.trial,
            parameters=self._parameters(result.arm),
            value=value,
            metrics=metrics_with_first(self._goals, value, result.metrics),
            status="failed" if value is None else "succeeded",
            is_feasible=None if value is None else self._goals.feasibility(value, result.metrics),
        )

    def _member(self, arm: int, rewards: Point) -> TrialResult:
        """Return a member of the front with the means of its rewards and of its constraints'
        metrics."""
        pairs = zip(self._goals.objectives, rewards, strict=True)
        values = {objective.metric: objective.value(reward) for objective, reward in pairs}
        results = self._results_of(arm)
        for goal in self._goals.constraints if results else ():
            if goal.metric not in values:
                metrics = [each.metrics[goal.metric] for each in results]
                values[goal.metric] = fmean(bounded(metrics))
        return self._mean(arm, next(iter(values.values())), {} if self._goals.is_single else values)

    def _mean(self, arm: int, value: float, metrics: Mapping[str, float]) -> TrialResult:
        """Return an arm with the mean of its values."""
        trials = [each.trial for each in self._results_of(arm)]
        return TrialResult(
            trial=trials[0] if trials else None,
            parameters=self._parameters(arm),
            value=value,
            status="succeeded" if trials else "existing",
            metrics=metrics,
            is_feasible=True if self._goals.constraints else None,
            evaluations=int(self._model.pulls.finished.counts[arm]),
        )

    def _results_of(self, arm: int) -> list[ArmResult]:
        """Return the results of an arm that have a value."""
        return [each for each in self._search.results if each.arm == arm and each.value is not None]

    def _parameters(self, arm: int) -> Mapping[str, Scalar]:
        return self._search.candidates.parameters(arm)
