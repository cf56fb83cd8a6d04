"""Optuna's TPE with its pruners, reduction 3; a pruned trial is not continued."""

from collections.abc import Callable, Mapping
from typing import Any

import optuna

from benchmarks.curves.problems import CurveProblem
from benchmarks.curves.simulate import Start, Suggestion
from benchmarks.peers.of_optuna import distribution, value_of

REDUCTION = 3
PRUNERS: Mapping[str, Callable[[CurveProblem], optuna.pruners.BasePruner]] = {
    "none": lambda problem: optuna.pruners.NopPruner(),
    "hyperband": lambda problem: optuna.pruners.HyperbandPruner(
        min_resource=problem.steps[0], max_resource=problem.last_step, reduction_factor=REDUCTION
    ),
    "sha": lambda problem: optuna.pruners.SuccessiveHalvingPruner(
        min_resource=problem.steps[0], reduction_factor=REDUCTION
    ),
}


class InOptuna:
    """A study in memory with a sampler, and the pruner `name` of PRUNERS."""

    def __init__(self, problem: CurveProblem, seed: int, name: str, sampler: optuna.samplers.BaseSampler) -> None:
        self.watches = name != "none"
        self._space, self._last = problem.space, problem.last_step
        self._study = optuna.create_study(
            direction="maximize",
            sampler=sampler,
            pruner=PRUNERS[name](problem),
            study_name=f"{problem.name}-{seed}",  # Hyperband assigns brackets by a hash of the name
        )
        self._distributions = {
            parameter_name: distribution(parameter) for parameter_name, parameter in problem.space.items()
        }
        self._trials: list[Any] = []

    def suggest(self) -> Suggestion:
        trial = self._study.ask(self._distributions)
        self._trials.append(trial)
        return Start({name: value_of(self._space[name], value) for name, value in trial.params.items()})

    def report(self, trial: int, step: int, value: float) -> bool:
        running = self._trials[trial]
        running.report(value, step)
        if not running.should_prune():
            return True
        self._study.tell(running, state=optuna.trial.TrialState.PRUNED)
        return False

    def end(self, trial: int, value: float) -> None:
        self._trials[trial].report(value, self._last)
        self._study.tell(self._trials[trial], value)
