"""Optuna's samplers (Akiba et al. 2019). Ordered parameters become the index of their value."""

import logging
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from bbkb.objectives.parameters import Choice, Ordered, Parameter, Range
from bbkb.orchestrator.errors import UserError
from benchmarks.peers.methods import exists
from benchmarks.peers.problems import Evaluation, Point, Problem

optuna.logging.set_verbosity(logging.ERROR)


class OfOptuna:
    """An Optuna study in memory with the sampler `name`."""

    def __init__(self, problem: Problem, seed: int, name: str) -> None:
        objectives = 1 if problem.several is None else problem.several.objectives
        self._space = problem.space
        self._study = optuna.create_study(directions=["maximize"] * objectives, sampler=sampler_of(problem, seed, name))
        self._distributions = {name: distribution(parameter) for name, parameter in problem.space.items()}
        self._running: dict[int, Any] = {}

    def ask(self, number: int) -> Point:
        trial = self._study.ask(self._distributions if self._is_flat else None)
        self._running[number] = trial
        if not self._is_flat:
            self._suggest(trial)
        return {name: value_of(self._space[name], value) for name, value in trial.params.items()}

    def tell(self, number: int, result: Evaluation) -> None:
        trial = self._running.pop(number)
        for place, margin in enumerate(result.margins):
            trial.set_constraint(f"margin-{place}", margin)
        failed = optuna.trial.TrialState.FAIL if result.rewards is None else None
        self._study.tell(trial, result.rewards, state=failed)

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


def sampler_of(problem: Problem, seed: int, name: str) -> optuna.samplers.BaseSampler:
    """The sampler `name` with its defaults for the problem."""
    samplers = optuna.samplers
    match name:
        case "tpe":
            return samplers.TPESampler(seed=seed)
        case "gp-sampler":
            return samplers.GPSampler(seed=seed, deterministic_objective=problem.is_deterministic)
        case "nsga-ii":
            return samplers.NSGAIISampler(seed=seed)
    return samplers.CmaEsSampler(seed=seed)


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
