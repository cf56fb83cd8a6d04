"""Optuna's samplers (Akiba et al. 2019). Ordered parameters become the index of their value."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from bbkb.objectives.parameters import Choice, Ordered, Parameter, Range
from bbkb.orchestrator.errors import UserError
from benchmarks.peers.methods import exists
from benchmarks.peers.problems import Point, Problem

optuna.logging.set_verbosity(logging.ERROR)

SAMPLERS: Mapping[str, Callable[[int, bool], optuna.samplers.BaseSampler]] = {
    "tpe": lambda seed, is_deterministic: optuna.samplers.TPESampler(seed=seed),
    "gp-sampler": lambda seed, is_deterministic: optuna.samplers.GPSampler(
        seed=seed, deterministic_objective=is_deterministic
    ),
    "cma-es": lambda seed, is_deterministic: optuna.samplers.CmaEsSampler(seed=seed),
}


class OfOptuna:
    """An Optuna study in memory with the sampler `name` of SAMPLERS."""

    def __init__(self, problem: Problem, seed: int, name: str) -> None:
        sampler = SAMPLERS[name](seed, problem.is_deterministic)
        self._space = problem.space
        self._study = optuna.create_study(direction="maximize", sampler=sampler)
        self._distributions = {name: distribution(parameter) for name, parameter in problem.space.items()}
        self._running: dict[int, Any] = {}

    def ask(self, number: int) -> Point:
        trial = self._study.ask(self._distributions if self._is_flat else None)
        self._running[number] = trial
        if not self._is_flat:
            self._suggest(trial)
        return {name: value_of(self._space[name], value) for name, value in trial.params.items()}

    def tell(self, number: int, reward: float | None) -> None:
        failed = optuna.trial.TrialState.FAIL if reward is None else None
        self._study.tell(self._running.pop(number), reward, state=failed)

    @property
    def _is_flat(self) -> bool:
        """Whether every parameter exists in every configuration."""
        return all(parameter.when is None for parameter in self._space.values())

    def _suggest(self, trial: Any) -> None:
        """Draw the parameters that exist one after the other, as in Optuna's conditional spaces."""
        for name, parameter in self._space.items():
            if not exists(parameter, trial.params):
                continue
            match self._distributions[name]:
                case FloatDistribution(low=low, high=high, log=log):
                    trial.suggest_float(name, low, high, log=log)
                case IntDistribution(low=low, high=high, log=log):
                    trial.suggest_int(name, low, high, log=log)
                case CategoricalDistribution(choices=levels):
                    trial.suggest_categorical(name, levels)

    def recommend(self) -> None:
        """None: the point with the largest mean reward."""


def distribution(parameter: Parameter) -> BaseDistribution:
    """The distribution of Optuna for `parameter`. Raises UserError when there is none."""
    match parameter:
        case Range(low=low, high=high, log=log, integer=False):
            return FloatDistribution(low, high, log=log)
        case Range(low=low, high=high, log=log, integer=True, step=None):
            return IntDistribution(int(low), int(high), log=log)
        case Ordered(ordered=levels):
            return IntDistribution(0, len(levels) - 1)
        case Choice(choices=levels):
            return CategoricalDistribution(levels)
    raise UserError(f"the benchmark's Optuna methods have no distribution for {parameter}")


def value_of(parameter: Parameter, value: Any) -> Any:
    """The parameter's value for Optuna's `value`."""
    return parameter.ordered[value] if isinstance(parameter, Ordered) else value
