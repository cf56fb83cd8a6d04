"""DEHB (Awad, Mallik, Hutter 2021): differential evolution on the rungs of Hyperband."""

import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any

from ConfigSpace import ConfigurationSpace
from dehb import DEHB

from benchmarks.curves.methods.jobs import Job, JobSearch
from benchmarks.curves.problems import CurveProblem
from benchmarks.peers.methods.of_configspace import hyperparameter, value_of


class Dehb(JobSearch):
    """Fidelities are steps, from the first to the last one, reduction 3."""

    def __init__(self, problem: CurveProblem, seed: int) -> None:
        super().__init__(problem)
        space = ConfigurationSpace(seed=seed)
        space.add([hyperparameter(name, parameter) for name, parameter in problem.space.items()])
        folder = Path(tempfile.mkdtemp(prefix="curves-dehb-"))  # DEHB writes its history
        weakref.finalize(self, shutil.rmtree, folder, True)
        self._dehb: Any = DEHB(
            cs=space,
            f=None,
            dimensions=len(problem.space),
            min_fidelity=problem.steps[0],
            max_fidelity=problem.last_step,
            eta=3,
            n_workers=1,  # of DEHB's own, which are not used
            seed=seed,
            output_path=str(folder),
            log_level="ERROR",
        )
        self._space = problem.space

    def _ask(self) -> Job:
        job = self._dehb.ask()
        config = dict(job["config"])
        configuration = {name: value_of(self._space[name], config[name]) for name in self._space}
        return Job(configuration, float(job["fidelity"]), job)

    def _tell(self, job: Job, value: float) -> None:
        self._dehb.tell(job.origin, {"fitness": -value, "cost": job.step})
