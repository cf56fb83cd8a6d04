"""A search of a space, with arms for configurations: candidates that grow, the strategy's state,
the log.

The log records what happened: the arms asked for, the results with what the strategy drew and
fitted, the candidates appended. Repeating it draws and fits nothing, so a loaded search continues
exactly as the saved one would have.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from objectives.conditions import Scalar
from objectives.objective import Candidates, ObjectiveError
from objectives.sampling import DEFAULT_SIZE, GROWING_SIZE, make_candidates
from objectives.space import LARGEST_WHOLE_SET, SearchSpace
from orchestrator.ask_tell.learner import RewardSumError
from orchestrator.ask_tell.saving import Entry
from orchestrator.ask_tell.trainings import CurveLearner, Trainings
from orchestrator.bandit.growing import Grows
from orchestrator.bandit.model.model import model_of
from orchestrator.bandit.strategy import AnyStrategy, LearnsCurves, Observation, TrialForecast
from orchestrator.campaign.goals import CampaignGoals
from orchestrator.campaign.hypervolume import Point, with_point
from orchestrator.candidates.pool import Appended, Pool, arms_of
from orchestrator.settings.spaces import build_forbid, build_space, dump_forbid, dump_space
from orchestrator.settings.strategies import build_strategy, dump_strategy

Value = float | Mapping[str, float] | None  # of a result; None: it could not be evaluated
ArmResult = tuple[int, Value]


@dataclass(frozen=True, kw_only=True)
class SearchSetup:
    """What a search begins with; it never changes.

    `enqueue`: configurations that are asked for first. At most `candidate_limit` candidates are
    kept. `steps`: the step at which a training ends; None: no training is stopped. `first_trials`:
    how many are trained for few steps first. `checkpoints`: whether a stopped training goes on from
    its checkpoint, so that pauses cost nothing.
    """

    space: SearchSpace
    goals: CampaignGoals
    strategy: AnyStrategy
    seed: int
    enqueue: Sequence[Mapping[str, Scalar]]
    candidate_limit: int
    steps: int | None = None
    first_trials: int = 0
    checkpoints: bool = False

    def dump(self) -> Entry:
        """Return the setup as plain values."""
        return {
            "space": dump_space(self.space.parameters),
            "forbid": dump_forbid(self.space.forbid),
            "direction": "maximize" if self.goals.objectives[0].is_maximized else "minimize",
            **({} if self.goals.is_single else {"goals": self.goals.plain()}),
            "strategy": dump_strategy(self.strategy),
            "seed": self.seed,
            "enqueue": [dict(configuration) for configuration in self.enqueue],
            "limit": self.candidate_limit,
            **({} if self.steps is None else self._dump_steps()),
        }

    def _dump_steps(self) -> Entry:
        return {"steps": self.steps, "first_trials": self.first_trials, "checkpoints": self.checkpoints}

    @classmethod
    def build(cls, dumped: Entry) -> "SearchSetup":
        """Return the setup that `dump` wrote."""
        return cls(
            space=SearchSpace(build_space(dumped["space"]), build_forbid(dumped["forbid"])),
            goals=CampaignGoals.of({"objective": {"direction": dumped["direction"]}, **dumped.get("goals", {})}),
            strategy=build_strategy(dumped["strategy"]),
            seed=dumped["seed"],
            enqueue=dumped["enqueue"],
            candidate_limit=dumped["limit"],
            steps=dumped.get("steps"),
            first_trials=dumped.get("first_trials", 0),
            checkpoints=dumped.get("checkpoints", False),  # older ones paused no training
        )

    def pool(self) -> Pool:
        """Return the candidates that there are first."""
        space = self.space
        grows = isinstance(self.strategy, Grows) and self.strategy.grows
        grows = grows and not (space.is_finite and space.count(LARGEST_WHOLE_SET) is not None)
        points = GROWING_SIZE if grows else DEFAULT_SIZE
        candidates = make_candidates(
            space, size=None, sampler="sobol", seed=self.seed, first=self.enqueue, points=points
        )
        return Pool(candidates, space if grows else None, self.candidate_limit)


class SpaceSearch:
    """A search from its `setup` on; the same calls give the same arms."""

    def __init__(self, setup: SearchSetup) -> None:
        self.setup = setup
        self.results: list[ArmResult] = []
        self.log: list[Entry] = []
        strategy = setup.strategy
        self._pool = setup.pool()
        candidates = self._pool.candidates
        arms = arms_of(candidates, candidates.repeats or model_of(strategy) is None)
        state = strategy.init(arms.with_goals(setup.goals.for_strategy), np.random.default_rng([setup.seed, 0]))
        trainings = Trainings(setup.steps, setup.first_trials, setup.checkpoints)
        self.learner = CurveLearner(strategy, state, setup.seed, self._record, trainings)
        self._best = -math.inf  # final reward
        self._forecasts: dict[int, TrialForecast] = {}  # of open trials, by `_forecast_by`
        self._forecast_by: object = None
        self._arms = {row.tobytes(): arm for arm, row in enumerate(candidates.features)}
        self._waiting = [self._arm(configuration) for configuration in setup.enqueue]  # enqueued and not asked for yet

    @property
    def candidates(self) -> Candidates:
        """All candidates there are now."""
        return self._pool.candidates

    def arms_of(self, configurations: Sequence[Mapping[str, Scalar]]) -> list[int]:
        """Return their arms; a configuration that is not a candidate becomes one. Raises
        ObjectiveError when one is not of the space."""
        for candidate in [self.setup.space.candidate(configuration) for configuration in configurations]:
            self._add(candidate)
        return [self._arm(configuration) for configuration in configurations]

    def ask(self, limit: int, skip: int = 0) -> list[int]:
        """Return at most `limit` arms to evaluate, pending from now on; those enqueued come first.
        The strategy leaves `skip` arms before them to others."""
        arms = self._waiting[:limit]
        if arms:
            self.learner.expect(arms)
        else:
            arms = self.learner.ask(limit, skip)
        self._log_asked(arms)
        return arms

    def expect(self, arms: Sequence[int]) -> None:
        """These arms are pending although `ask` did not give them."""
        self.learner.expect(arms)
        self.log.append({"expected": list(arms)})

    def tell(self, results: Sequence[ArmResult]) -> None:
        """Results, in any order. Raises ValueError when the values of a configuration have no
        finite sum; nothing is learned then."""
        try:
            self.learner.tell([self._observation(arm, value) for arm, value in results])
        except RewardSumError as error:
            configuration = self.candidates.parameters(error.arm)
            rule = f"the values of {configuration} add up to more than a float can hold"
            raise ValueError(f"{rule}; divide all by a constant") from error
        self.results.extend(results)
        self.log.append({"told": [list(pair) for pair in results]})
        rewards = [self._observation(arm, value).reward for arm, value in results]
        self._best = max([self._best, *(reward for reward in rewards if reward is not None)])

    def report(self, arm: int, step: int, value: float) -> bool:
        """Take the value of the arm's trial at a step; return whether it goes on, or is paused."""
        self.learner.report(arm, step, self.setup.goals.objectives[0].sign * value)
        self.log.append({"reported": [arm, step, value]})
        goes_on = self.learner.trainings.cause_of_stop(arm, self._is_hopeless) is None
        if not goes_on:
            self.stop(arm, continues=True)
        return goes_on

    def stop(self, arm: int, continues: bool) -> None:
        """The arm's trial was stopped before its end; `continues`: it may be continued."""
        self.learner.stop(arm, continues)
        self.log.append({"stopped": arm, "continues": continues})

    def _is_hopeless(self, trial: int) -> bool:
        """Return whether even the trial's optimistic forecast is worse than the best reward."""
        strategy, learner = self.setup.strategy, self.learner
        if self._forecast_by is not learner.state and isinstance(strategy, LearnsCurves):
            predictions = strategy.predict_trials(learner.state, list(learner.trainings.curves))
            self._forecasts, self._forecast_by = (
                {prediction.trial: prediction for prediction in predictions},
                learner.state,
            )
        forecast = self._forecasts.get(trial)
        return forecast is not None and forecast.high < self._best

    def repeat(self, entry: Entry) -> None:
        """Repeat a call that the log of a saved optimizer has recorded, with the same choices."""
        if "asked" in entry:
            arms = [int(arm) for arm in entry["asked"]]
            self.learner.expect(arms)
            self._log_asked(arms)
        elif "expected" in entry:
            self.expect([int(arm) for arm in entry["expected"]])
        elif "appended" in entry:
            self._extend(Appended(entry["appended"], tuple(int(arm) for arm in entry["retired"])))
        if "told" in entry:
            self.tell([(int(arm), _read_value(value)) for arm, value in entry["told"]])
        if "reported" in entry:
            arm, step, value = entry["reported"]
            self.learner.report(int(arm), int(step), self.setup.goals.objectives[0].sign * float(value))
            self.log.append({"reported": [arm, step, value]})
        if "stopped" in entry:
            self.stop(int(entry["stopped"]), bool(entry["continues"]))
        if "record" in entry:
            self.learner.restore(entry["record"])
            self.log.append({"record": dict(entry["record"])})

    def front(self) -> list[tuple[int, Point]]:
        """Return the arms that satisfy all constraints and that no other one is better than in
        every objective, with the mean rewards of the objectives; the best of the first objective
        first."""
        pulls, objectives = self.learner.view.pulls, len(self.setup.goals.objectives)
        finished = pulls.finished_arms
        means = np.array([output.reward_sums[finished] / pulls.counts[finished] for output in pulls.outputs])
        feasible = np.flatnonzero((means[objectives:] >= 0.0).all(axis=0))
        arms: dict[Point, int] = {}
        for place in feasible.tolist():
            arms.setdefault(tuple(means[:objectives, place].tolist()), int(finished[place]))
        front: list[Point] = []
        for point in arms:
            front = with_point(front, point)
        return [(arms[point], point) for point in sorted(front, reverse=True)]

    def _log_asked(self, arms: Sequence[int]) -> None:
        self._waiting = self._waiting[len(arms) :] if self._waiting else []
        self.log.append({"asked": list(arms)})

    def _observation(self, arm: int, value: Value) -> Observation:
        """Return a result as rewards, which are maximised."""
        goals = self.setup.goals
        objective = goals.objectives[0]
        if value is None or not isinstance(value, Mapping):
            return Observation(arm, None if value is None else objective.sign * value)
        first = value[objective.metric]
        return Observation(arm, objective.sign * first, goals.further(first, value))

    def _record(self) -> None:
        """Record what the strategy drew and fitted, and let the candidates grow."""
        strategy, state = self.setup.strategy, self.learner.state
        self.log.append({"record": dict(strategy.recorded(state))})
        growth = self._pool.demand(strategy, state)
        if growth is not None and isinstance(strategy, Grows):
            rng = np.random.default_rng([self.setup.seed, 3, state.round])
            self._extend(self._pool.growth(strategy, state, growth, self.learner.open, rng))

    def _add(self, candidates: Candidates) -> None:
        """Make sure that the one configuration `candidates` is a candidate."""
        if candidates.features[0].tobytes() in self._arms:
            return
        if not isinstance(self.setup.strategy, Grows):
            raise ObjectiveError(f"{candidates.parameters(0)} is not a candidate, and this strategy supports no others")
        self._extend(Appended({name: tuple(column.tolist()) for name, column in candidates.columns.items()}, ()))

    def _extend(self, appended: Appended) -> None:
        first, strategy = len(self._pool.candidates), self.setup.strategy
        full = Pool(self._pool.candidates, self.setup.space, self.setup.candidate_limit)
        larger, features, log_prior = full.append(appended)
        self._pool = Pool(larger.candidates, self._pool.space, self.setup.candidate_limit)
        if isinstance(strategy, Grows):
            self.learner.change(strategy.extend(self.learner.state, features, appended.retired, log_prior))
        self._arms.update({row.tobytes(): arm for arm, row in enumerate(features, start=first)})
        columns = {name: list(column) for name, column in appended.columns.items()}
        self.log.append({"appended": columns, "retired": list(appended.retired)})

    def _arm(self, configuration: Mapping[str, Scalar]) -> int:
        """Return the arm of a configuration that is a candidate."""
        return self._arms[self.setup.space.candidate(configuration).features[0].tobytes()]


def _read_value(value: Any) -> Value:
    if isinstance(value, Mapping):
        return {str(name): float(number) for name, number in value.items()}
    return None if value is None else float(value)
