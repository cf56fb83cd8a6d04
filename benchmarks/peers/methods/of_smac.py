"""SMAC3 (Lindauer et al. 2022), its hyper-parameter optimisation facade: random forests, log
expected improvement."""

import shutil
import tempfile
import weakref
from pathlib import Path

from ConfigSpace import ConfigurationSpace
from smac import HyperparameterOptimizationFacade, Scenario
from smac.runhistory import TrialInfo, TrialValue

from benchmarks.peers.methods.of_configspace import hyperparameter, value_of
from benchmarks.peers.problems import Point, Problem
from orchestrator.errors import CampaignError


class OfSmac:
    """Minimises −reward. `deterministic` is set when the problem has no noise; else SMAC repeats
    promising points."""

    def __init__(self, problem: Problem, seed: int, evaluations: int) -> None:
        self._space = problem.space
        space = ConfigurationSpace(seed=seed)
        space.add([hyperparameter(name, parameter) for name, parameter in problem.space.items()])
        folder = Path(tempfile.mkdtemp(prefix="peers-smac-"))  # SMAC writes its run history with all settings
        weakref.finalize(self, shutil.rmtree, folder, True)
        scenario = Scenario(
            space,
            output_directory=folder,
            deterministic=problem.is_deterministic,
            n_trials=2 * evaluations,  # pending suggestions count as trials; the harness ends the search
            seed=seed,
        )
        self._smac = HyperparameterOptimizationFacade(scenario, refuse_to_evaluate, overwrite=True, logging_level=40)
        self._running: dict[int, TrialInfo] = {}

    def ask(self, number: int) -> Point:
        info = self._smac.ask()
        self._running[number] = info
        return {name: value_of(self._space[name], info.config[name]) for name in self._space}

    def tell(self, number: int, reward: float | None) -> None:
        if reward is None:
            raise CampaignError("the benchmark's SMAC3 does not run problems with failed evaluations")
        self._smac.tell(self._running.pop(number), TrialValue(cost=-reward))

    def recommend(self) -> Point | None:
        """The incumbent; None before the first result."""
        incumbents = self._smac.intensifier.get_incumbents()
        if not incumbents:
            return None
        return {name: value_of(self._space[name], incumbents[0][name]) for name in self._space}


def refuse_to_evaluate(config: object, seed: int = 0, budget: float = 0.0) -> float:
    """Raise an error: the harness asks SMAC for points and passes their results."""
    raise AssertionError("SMAC must not evaluate here: the harness asks it for points and passes results")
