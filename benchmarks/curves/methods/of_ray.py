"""Random search with Ray Tune's `AsyncHyperBandScheduler` (ASHA, Li et al. 2020), reduction 3, from
the first step."""

from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import ASHAScheduler

from benchmarks.curves.methods.random_search import RandomConfigurations
from benchmarks.curves.problems import CurveProblem
from benchmarks.curves.simulate import Start, Suggestion

REDUCTION = 3


class RayAsha:
    """The scheduler decides; a stopped trial is not continued."""

    watches = True

    def __init__(self, problem: CurveProblem, seed: int) -> None:
        self._draw, self._last = RandomConfigurations(problem, seed), problem.last_step
        self._scheduler: Any = ASHAScheduler(
            "training_iteration",
            metric="value",
            mode="max",
            max_t=problem.last_step,
            grace_period=problem.steps[0],
            reduction_factor=REDUCTION,
        )
        self._trials: list[Any] = []

    def suggest(self) -> Suggestion | None:
        configuration = self._draw()
        if configuration is None:
            return None
        self._trials.append(Trial("recorded", stub=True))
        self._scheduler.on_trial_add(None, self._trials[-1])
        return Start(configuration)

    def report(self, trial: int, step: int, value: float) -> bool:
        result = {"training_iteration": step, "value": value}
        return bool(self._scheduler.on_trial_result(None, self._trials[trial], result) != "STOP")

    def end(self, trial: int, value: float) -> None:
        result = {"training_iteration": self._last, "value": value}
        self._scheduler.on_trial_complete(None, self._trials[trial], result)

    def recommend(self) -> None:
        return None
