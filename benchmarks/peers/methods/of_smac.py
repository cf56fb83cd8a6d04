"""SMAC3 (Lindauer et al. 2022), its hyper-parameter optimisation facade: random forests, log expected improvement."""

import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any

from ConfigSpace import CategoricalHyperparameter, ConfigurationSpace, Float, Integer
from smac import HyperparameterOptimizationFacade, Scenario
from smac.runhistory import TrialInfo, TrialValue

from benchmarks.peers.problems import Point, Problem
from objectives.conditions import Scalar
from objectives.parameters import Choice, Ordered, Parameter, Range
from orchestrator.errors import UserError


class OfSmac:
    """Minimises −reward. `deterministic` is set when the problem has no noise; else SMAC repeats promising points."""

    def __init__(self, problem: Problem, seed: int, evaluations: int) -> None:
        self._space = problem.space
        space = ConfigurationSpace(seed=seed)
        space.add([_hyperparameter(name, parameter) for name, parameter in problem.space.items()])
        folder = Path(tempfile.mkdtemp(prefix="peers-smac-"))  # SMAC writes its run history with all settings
        weakref.finalize(self, shutil.rmtree, folder, True)
        scenario = Scenario(
            space,
            output_directory=folder,
            deterministic=problem.is_deterministic,
            n_trials=2 * evaluations,  # pending suggestions count as trials; the harness ends the search
            seed=seed,
        )
        self._smac = HyperparameterOptimizationFacade(scenario, _refuse_to_evaluate, overwrite=True, logging_level=40)
        self._running: dict[int, TrialInfo] = {}

    def ask(self, number: int) -> Point:
        info = self._smac.ask()
        self._running[number] = info
        return {name: _value(self._space[name], info.config[name]) for name in self._space}

    def tell(self, number: int, reward: float) -> None:
        self._smac.tell(self._running.pop(number), TrialValue(cost=-reward))

    def recommend(self) -> Point | None:
        """The incumbent; None before the first result."""
        incumbents = self._smac.intensifier.get_incumbents()
        if not incumbents:
            return None
        return {name: _value(self._space[name], incumbents[0][name]) for name in self._space}


def _refuse_to_evaluate(config: object, seed: int = 0) -> float:
    raise AssertionError("SMAC must not evaluate here: the harness asks it for points and passes results")


def _hyperparameter(name: str, parameter: Parameter) -> Any:
    match parameter:
        case Range(low=low, high=high, log=log, integer=False):
            return Float(name, (low, high), log=log)
        case Ordered(ordered=levels):
            return Integer(name, (0, len(levels) - 1))
        case Choice(choices=levels):
            return CategoricalHyperparameter(name, levels)
    raise UserError(f"the benchmark's SMAC has no hyper-parameter for {parameter}")


def _value(parameter: Parameter, value: Any) -> Scalar:
    if isinstance(parameter, Ordered):
        return parameter.ordered[int(value)]
    return float(value) if isinstance(parameter, Range) else str(value)
