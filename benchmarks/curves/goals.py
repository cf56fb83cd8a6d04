"""`python -m benchmarks.curves.goals`: early stopping with two objectives, or with a constraint.

A setting of the optimizer is used for two text models of TaskSet, whose losses were recorded for the
same 1000 settings. `pair`: both losses are minimized. `bound`: the first one is, and the second one
must be in the best 30 % of the recorded ones; it is reported at each step, or (`late`) known at the
end only. Only trainings that end within the budget of steps count.

    python -m benchmarks.curves.goals FOLDER 20 5 pair,bound,late uniform-none,uniform-median,bbkb-model
"""

import csv
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bbkb.objectives.datasets import DataSource
from bbkb.orchestrator.campaign.hypervolume import hypervolume
from benchmarks.curves.campaign import TrainingExecutor, simulate, within_budget
from benchmarks.curves.problems import Configuration, CurveProblem
from benchmarks.curves.recorded import load_taskset
from benchmarks.curves.simulate import Setting

RULES: Mapping[str, Mapping[str, object]] = {
    "none": {},
    "median": {"rule": "median"},
    "asha": {"rule": "asha"},
    "model": {"rule": "model", "continue": True},
}
SHARE = 0.3  # of the recorded settings that satisfy the constraint
PAIRS = ((0, 1), (2, 4), (3, 5))  # tasks


class PairExecutor(TrainingExecutor):
    """Workers that train the curves of two tasks."""

    def __init__(self, first: CurveProblem, second: CurveProblem, workers: int, is_late: bool) -> None:
        super().__init__(first, workers)
        self._second = second
        self._is_late = is_late

    def metrics(self, trial: int, at: int) -> dict[str, float]:
        curve = self._second.curve(self.configurations[trial])
        is_end = at + 1 == len(self.curves[trial])
        return {} if self._is_late and not is_end else {"second": float(curve[at])}


def search(kind: str, tasks: tuple[int, int], method: str, trainings: int, seed: int, data: Path) -> list[object]:
    """Run one campaign of a method such as `bbkb-model`, and return its row: the regret or the lost
    share of the hypervolume, trials begun and completed, and seconds of computation."""
    strategy, rule = method.split("-")
    source = DataSource.find(data)
    first, second = (load_taskset(task, source) for task in tasks)
    assert first.arms is not None

    def ends_of(configurations: Iterable[Configuration]) -> np.ndarray:
        ends = [(first.curve(one)[-1], second.curve(one)[-1]) for one in configurations]
        return np.array(ends).reshape(-1, 2)

    finals = ends_of(map(first.arms.parameters, range(len(first.arms))))
    limit = float(np.quantile(finals[:, 1], 1 - SHARE))
    goals: dict[str, Any] = {"constraints": [{"metric": "second", "at_least": limit}]}
    if kind == "pair":
        goals = {"objectives": [{"metric": "value"}, {"metric": "second"}]}
    executor = PairExecutor(first, second, 8, is_late=kind == "late")
    began = time.process_time()
    setting = Setting(workers=8, trainings=trainings, seed=seed)
    simulate(first, executor, setting, f"{kind}-{method}", RULES[rule], strategy={"name": strategy}, **goals)
    seen = within_budget(first, executor, trainings * first.last_step, is_stopped=rule != "none")
    ended = [report.trial for report in seen if report.reports == len(executor.curves[report.trial])]
    regret = lost(kind, ends_of(executor.configurations[trial] for trial in ended), finals, limit)
    return [
        kind,
        f"{tasks[0]}-{tasks[1]}",
        method,
        trainings,
        seed,
        round(regret, 4),
        len(executor.curves),
        len(ended),
        round(time.process_time() - began),
    ]


def lost(kind: str, ends: np.ndarray, finals: np.ndarray, limit: float) -> float:
    """The share of the hypervolume above the medians that is not reached; or the regret of the best
    feasible trial, in units of (best − median) of the feasible settings, at most 2."""
    if kind == "pair":
        reference = np.median(finals, axis=0).tolist()
        return 1.0 - hypervolume(ends.tolist(), reference) / hypervolume(finals.tolist(), reference)
    feasible = finals[finals[:, 1] >= limit, 0]
    own = ends[ends[:, 1] >= limit, 0]
    best = float(feasible.max())
    return 2.0 if not len(own) else min(2.0, (best - float(own.max())) / (best - float(np.median(feasible))))


if __name__ == "__main__":
    data, trainings, seeds, kinds, methods = sys.argv[1:]
    writer = csv.writer(sys.stdout, lineterminator="\n")
    for seed in range(int(seeds)):
        for tasks in PAIRS:
            for kind in kinds.split(","):
                for method in methods.split(","):
                    writer.writerow(search(kind, tasks, method, int(trainings), seed, Path(data)))
                    sys.stdout.flush()
