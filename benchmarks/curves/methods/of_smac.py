"""SMAC3's multi-fidelity facade (Lindauer et al. 2022): Hyperband, and a random forest on the
largest budget."""

import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any

from ConfigSpace import ConfigurationSpace
from smac import MultiFidelityFacade, Scenario
from smac.runhistory import TrialValue

from benchmarks.curves.methods.jobs import Job, JobSearch
from benchmarks.curves.problems import CurveProblem
from benchmarks.peers.methods.of_configspace import hyperparameter, value_of
from benchmarks.peers.methods.of_smac import refuse_to_evaluate

_MOST_TRIALS = 100_000


class SmacMultiFidelity(JobSearch):
    """Budgets are steps, from the first to the last one, with the facade's own reduction, 3."""

    def __init__(self, problem: CurveProblem, seed: int) -> None:
        super().__init__(problem)
        space = ConfigurationSpace(seed=seed)
        space.add([hyperparameter(name, parameter) for name, parameter in problem.space.items()])
        folder = Path(tempfile.mkdtemp(prefix="curves-smac-"))  # SMAC writes its run history with all settings
        weakref.finalize(self, shutil.rmtree, folder, True)
        scenario = Scenario(
            space,
            output_directory=folder,
            deterministic=True,
            n_trials=_MOST_TRIALS,
            min_budget=problem.steps[0],
            max_budget=problem.last_step,
            seed=seed,
        )
        self._smac: Any = MultiFidelityFacade(scenario, refuse_to_evaluate, overwrite=True, logging_level=40)
        self._space = problem.space

    def _ask(self) -> Job:
        info = self._smac.ask()
        configuration = {name: value_of(self._space[name], info.config[name]) for name in self._space}
        return Job(configuration, float(info.budget), info)

    def _tell(self, job: Job, value: float) -> None:
        self._smac.tell(job.origin, TrialValue(cost=-value), save=False)
