"""Networks of LCBench after their last epoch, through YAHPO Gym's surrogate
(`benchmarks.curves.lcbench`).

The problem `lcbench-3945` is the OpenML task 3945: 7 parameters, three of them whole numbers,
without noise. The reward is the validation accuracy in per cent.
"""

from dataclasses import dataclass

import numpy as np

from benchmarks.curves.lcbench import TASKS, load
from benchmarks.curves.problems import CurveProblem
from benchmarks.peers.problems import Evaluation, Group, Point, WholeSpace
from objectives.datasets import DataSource
from objectives.parameters import Space

NAMES = tuple(f"lcbench-{task}" for task in TASKS)


@dataclass(frozen=True, eq=False)
class Training(WholeSpace):
    """One task of LCBench."""

    curves: CurveProblem  # its learning curves, of which the last value counts

    @property
    def group(self) -> Group:
        return Group.LCBENCH

    @property
    def space(self) -> Space:
        return self.curves.space

    def evaluate(self, point: Point, rng: np.random.Generator) -> Evaluation:
        value = float(self.curves.curve(point)[-1])
        return Evaluation(value, value, self.curves.regret(value))


def load_training(name: str, source: DataSource) -> Training:
    """The problem `name` of NAMES."""
    return Training(load(name.removeprefix("lcbench-"), source))
