"""The methods by name: campaigns of this project, Optuna, and random search without stopping, with a
stopping rule of this project, or with many short trainings, the best of which are continued.

Optuna is imported when it is used, so it is optional.
"""

import math
from collections.abc import Mapping, Sequence
from importlib.util import find_spec

import numpy as np

from bbkb.objectives.errors import did_you_mean
from bbkb.objectives.sampling import make_candidates
from bbkb.orchestrator.campaign.trainings import Rungs, StoppingRule
from bbkb.orchestrator.errors import UserError
from benchmarks.curves.problems import Configuration, CurveProblem
from benchmarks.curves.simulate import Continue, Method, Setting, Start, Suggestion

LABELS: Mapping[str, str] = {
    "random": "random search",
    "random-asha": "random search, asha",
    "random-short": "random search, 5 steps, then the best",
    "tpe": "Optuna, TPE",
    "tpe-hyperband": "Optuna, TPE, HyperbandPruner",
    "tpe-sha": "Optuna, TPE, SuccessiveHalvingPruner",
    "bbkb": "bbkb, no stopping",
    "bbkb-median": "bbkb, median",
    "bbkb-model": "bbkb, model",
}
RANDOM = ("random", "random-asha", "random-short")


class RandomConfigurations:
    """Configurations of a problem, drawn without replacement from its list, else from its space."""

    def __init__(self, problem: CurveProblem, seed: int) -> None:
        self._arms = problem.arms or make_candidates(dict(problem.space), 4096, "random", seed)
        self._order = iter(np.random.default_rng([seed, 31]).permutation(len(self._arms)))

    def __call__(self) -> Configuration | None:
        """The next one; None if all have been drawn."""
        arm = next(self._order, None)
        return None if arm is None else self._arms.parameters(int(arm))


class RandomSearch:
    """Random configurations, stopped by `rule`; None: every training runs to its end."""

    def __init__(self, problem: CurveProblem, seed: int, rule: StoppingRule | None) -> None:
        self._draw, self._rule, self._rungs = RandomConfigurations(problem, seed), rule, Rungs().draft()
        self.watches = rule is not None

    def suggest(self) -> Suggestion | None:
        configuration = self._draw()
        return None if configuration is None else Start(configuration)

    def report(self, trial: int, step: int, value: float) -> bool:
        if self._rule is None:
            return True
        self._rungs.report(self._rule, trial, step, value)
        return not self._rungs.stops(self._rule, trial)

    def end(self, trial: int, value: float) -> None:
        self._rungs.remove([trial])


class ShortThenBest:
    """Random configurations for `first_steps` steps, then the best `best_kept` to the end.

    Any other worker is idle while these are completed. If trainings end early, the remaining budget
    is used for the next best configurations, and then for new ones.
    """

    watches = True

    def __init__(
        self, problem: CurveProblem, seed: int, trainings: int, first_steps: int = 5, best_kept: int = 3
    ) -> None:
        self._draw, self._best_kept = RandomConfigurations(problem, seed), best_kept
        self._until = next(step for step in problem.steps if step >= min(first_steps, problem.last_step))
        place = problem.steps.index(self._until)
        short, remaining_cost = sum(problem.costs[: place + 1]), sum(problem.costs[place + 1 :])
        budget = trainings * problem.last_step - best_kept * remaining_cost
        self._wanted, self._started = max(best_kept, math.floor(budget / short)), 0
        self._values = dict[int, float]()  # after the short trainings
        self._continued, self._ended = set[int](), set[int]()

    def suggest(self) -> Suggestion | None:
        if self._started < self._wanted:
            start = self._start()
            if start is not None:
                return start
            self._wanted = self._started
        is_training = len(self._values.keys() | self._ended) < self._started
        if is_training or len(self._continued - self._ended) >= self._best_kept:
            return None
        waiting = self._values.keys() - self._continued
        if not waiting:
            return self._start()
        best = max(waiting, key=lambda trial: (self._values[trial], -trial))
        self._continued.add(best)
        return Continue(best)

    def report(self, trial: int, step: int, value: float) -> bool:
        if step == self._until:
            self._values[trial] = value
        return step != self._until

    def end(self, trial: int, value: float) -> None:
        self._ended.add(trial)

    def _start(self) -> Start | None:
        configuration = self._draw()
        self._started += configuration is not None
        return None if configuration is None else Start(configuration)


def known_methods(names: Sequence[str]) -> None:
    """Raise UserError if one of `names` is not a method, or its library is not installed."""
    for name in names:
        if name not in LABELS:
            choices = ",".join(LABELS)
            raise UserError(f"--methods must be some of {choices}, got {name!r}{did_you_mean(name, LABELS)}")
        if name.startswith("tpe") and find_spec("optuna") is None:
            remedy = "pip install optuna, or leave it out of --methods"
            raise UserError(f"--methods: {name} needs optuna, which is not installed; {remedy}")


def make_method(name: str, problem: CurveProblem, setting: Setting) -> Method:
    """Return the method `name` of LABELS, which does not run a campaign."""
    seed, trainings = setting.seed, setting.trainings
    if name.startswith("tpe"):
        from optuna.samplers import TPESampler

        from benchmarks.curves.of_optuna import InOptuna

        return InOptuna(problem, seed, name.partition("-")[2] or "none", TPESampler(seed=seed))
    match name:
        case "random":
            return RandomSearch(problem, seed, None)
        case "random-asha":
            return RandomSearch(problem, seed, StoppingRule.asha(3, problem.steps[0]))
    return ShortThenBest(problem, seed, trainings)
