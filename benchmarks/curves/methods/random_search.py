"""Random search: without stopping, with a stopping rule of this project, and many short trainings
with the best continued."""

import math

import numpy as np

from benchmarks.curves.problems import Configuration, CurveProblem
from benchmarks.curves.simulate import Continue, Start, Suggestion
from objectives.sampling import make_candidates
from orchestrator.campaign.trainings.rungs import Rungs, StoppingRule


class RandomConfigurations:
    """Configurations of a problem, drawn without replacement from its list, else from its space."""

    def __init__(self, problem: CurveProblem, seed: int) -> None:
        self._arms = problem.arms or make_candidates(dict(problem.space), 4096, "random", seed)
        self._order = iter(np.random.default_rng([seed, 31]).permutation(len(self._arms)))

    def __call__(self) -> Configuration | None:
        """The next one; None when all have been drawn."""
        arm = next(self._order, None)
        return None if arm is None else self._arms.parameters(int(arm))


class RandomSearch:
    """Random configurations, stopped by `rule`; None: every training runs to its end."""

    def __init__(self, problem: CurveProblem, seed: int, rule: StoppingRule | None) -> None:
        self._draw, self._rule, self._rungs = RandomConfigurations(problem, seed), rule, Rungs()
        self.watches = rule is not None

    def suggest(self) -> Suggestion | None:
        configuration = self._draw()
        return None if configuration is None else Start(configuration)

    def report(self, trial: int, step: int, value: float) -> bool:
        if self._rule is None:
            return True
        self._rungs = self._rungs.after(self._rule, trial, step, value)
        return not self._rungs.stops(self._rule, trial)

    def end(self, trial: int, value: float) -> None:
        self._rungs = self._rungs.without(trial)

    def recommend(self) -> None:
        return None


class ShortThenBest:
    """Random configurations for `first_steps` steps, then the best `best_kept` to the end."""

    watches = True

    def __init__(
        self, problem: CurveProblem, seed: int, trainings: int, first_steps: int = 5, best_kept: int = 3
    ) -> None:
        self._draw = RandomConfigurations(problem, seed)
        self._until = next(step for step in problem.steps if step >= min(first_steps, problem.last_step))
        place = problem.steps.index(self._until)
        short, remaining_cost = sum(problem.costs[: place + 1]), sum(problem.costs[place + 1 :])
        self._wanted = max(best_kept, math.floor((trainings * problem.whole_cost - best_kept * remaining_cost) / short))
        self._values, self._started = dict[int, float](), 0
        self._waiting: list[int] | None = None
        self._ended = set[int]()  # trials that ended early

    def suggest(self) -> Suggestion | None:
        if self._started < self._wanted:
            configuration = self._draw()
            if configuration is not None:
                self._started += 1
                return Start(configuration)
            self._wanted = self._started
        if len(self._values) + len(self._ended) < self._wanted:
            return None
        if self._waiting is None:
            self._waiting = sorted(self._values, key=lambda trial: -self._values[trial])
        return Continue(self._waiting.pop(0)) if self._waiting else None

    def report(self, trial: int, step: int, value: float) -> bool:
        if step == self._until:
            self._values[trial] = value
        return step != self._until

    def end(self, trial: int, value: float) -> None:
        if trial not in self._values:
            self._ended.add(trial)

    def recommend(self) -> None:
        return None
