"""This project's search inside Optuna and Ray Tune, with their pruners and schedulers; with `last`
it learns the last value of each trial only, as it did before it learned values before the end."""

from collections.abc import Mapping
from typing import Any

import optuna
from ray import tune

from benchmarks.curves.methods.of_ray import RayAsha
from benchmarks.curves.problems import CurveProblem
from benchmarks.curves.simulate import Start, Suggestion
from objectives.parameters import Choice, Ordered, Parameter, Range
from orchestrator.adapters.optuna import BBKBSampler
from orchestrator.adapters.tune import BBKBSearch
from orchestrator.ask_tell.space import Optimizer


class LastValueSampler(BBKBSampler):
    """A pruned trial counts with its last value, as if it had ended with it."""

    def _report(self, optimizer: Optimizer, trial: Any, configuration: Mapping[str, Any], sign: float) -> None:
        if trial.state == optuna.trial.TrialState.PRUNED:
            optimizer.tell(configuration, sign * trial.intermediate_values[trial.last_step])


def sampler(seed: int, learns_last: bool) -> BBKBSampler:
    """Return the sampler, or the one that learns last values only."""
    return (LastValueSampler if learns_last else BBKBSampler)(seed=seed)


class InRayTune(RayAsha):
    """The searcher, with Ray Tune's ASHA."""

    def __init__(self, problem: CurveProblem, seed: int, learns_last: bool) -> None:
        super().__init__(problem, seed)
        space = {name: _domain(parameter) for name, parameter in problem.space.items()}
        self._search = BBKBSearch(space, "value", "max", seed=seed, backlog=0)
        self._learns_last = learns_last

    def suggest(self) -> Suggestion | None:
        if super().suggest() is None:
            return None
        config = self._search.suggest(str(len(self._trials) - 1))
        return None if config is None else Start(config)

    def report(self, trial: int, step: int, value: float) -> bool:
        goes_on = super().report(trial, step, value)
        if goes_on:
            self._search.on_trial_result(str(trial), self._result(step, value))
        else:
            self._search.on_trial_complete(str(trial), self._result(step, value))
        return goes_on

    def end(self, trial: int, value: float) -> None:
        super().end(trial, value)
        self._search.on_trial_complete(str(trial), self._result(self._last, value))

    def _result(self, step: int, value: float) -> dict[str, Any]:
        return {"value": value, **({} if self._learns_last else {"training_iteration": step})}


def _domain(parameter: Parameter) -> Any:
    """The parameter as one of Ray Tune's; raises TypeError for a kind that the problems do not
    have."""
    match parameter:
        case Range(integer=True, log=True):
            return tune.lograndint(int(parameter.low), int(parameter.high) + 1)
        case Range(integer=True):
            return tune.randint(int(parameter.low), int(parameter.high) + 1)
        case Range():
            return (tune.loguniform if parameter.log else tune.uniform)(parameter.low, parameter.high)
        case Choice():
            return tune.choice(list(parameter.choices))
        case Ordered():
            return tune.choice(list(parameter.ordered))
        case _:
            raise TypeError(f"no domain for {parameter!r}")
