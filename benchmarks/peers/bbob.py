"""The 24 noise-free functions of COCO's suite bbob (Hansen, Auger, Ros, Mersmann, Tušar, Brockhoff
2021), minimized.

The problem `bbob-f15-d5` is function 15 in 5 dimensions. The seed selects the instance, that is,
the place of the optimum and the rotation. Needs coco-experiment.
"""

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import find_spec
from typing import Any

import numpy as np
from scipy.stats import qmc

from benchmarks.peers.problems import Evaluation, Group, Point, WholeSpace
from objectives.parameters import Range, Space
from orchestrator.errors import UserError

FUNCTIONS = 24
DIMENSIONS = (2, 5, 10)
INSTANCES = 15  # the suite numbers them from 1
_BOUND = 5.0  # every parameter is in [−5, 5]
_PLACE = "._bbob_problem_best_parameter.txt"
_MEDIAN_OF = 12  # the median is computed from 2^12 Sobol points


def names(dimension: int) -> Iterator[str]:
    """The problems of one dimension."""
    return (f"bbob-f{function}-d{dimension}" for function in range(1, FUNCTIONS + 1))


@dataclass(frozen=True)
class Bbob(WholeSpace):
    """Function `function` in `dimension` dimensions; `seed` 0 is instance 1, and after 15 seeds
    they are repeated."""

    function: int
    dimension: int
    seed: int

    @property
    def group(self) -> Group:
        return Group.BBOB

    @cached_property
    def space(self) -> Space:
        return {f"x{place}": Range(-_BOUND, _BOUND) for place in range(self.dimension)}

    def evaluate(self, point: Point, rng: np.random.Generator) -> Evaluation:
        """Evaluate a point. The reward is −f."""
        at = np.array([float(str(point[name])) for name in self.space])
        value = float(self._function(at))
        return Evaluation(-value, -value, (value - self._smallest) / self._unit)

    @cached_property
    def _function(self) -> Any:
        instance = 1 + self.seed % INSTANCES
        return _suite(self.dimension).get_problem_by_function_dimension_instance(
            self.function, self.dimension, instance
        )

    @cached_property
    def _smallest(self) -> float:
        """The minimum. The suite writes its place to a file in the current folder, and all minima
        have two decimals."""
        with tempfile.TemporaryDirectory(prefix="peers-bbob-") as folder, contextlib.chdir(folder):
            self._function._best_parameter("print")
            place = np.loadtxt(_PLACE)
        return round(float(self._function(place)), 2)

    @cached_property
    def _unit(self) -> float:
        """The unit of the regret: median − minimum."""
        points = _BOUND * (2.0 * qmc.Sobol(self.dimension, seed=0).random_base2(_MEDIAN_OF) - 1.0)
        return float(np.median([self._function(point) for point in points])) - self._smallest


def parse(name: str, seed: int) -> Bbob:
    """The problem of a name that `names` gives."""
    function, dimension = name.removeprefix("bbob-f").split("-d")
    return Bbob(int(function), int(dimension), seed)


@cache
def _suite(dimension: int) -> Any:
    if find_spec("cocoex") is None:
        raise UserError("the problems bbob-… need cocoex, which is not installed; pip install coco-experiment")
    import cocoex

    return cocoex.Suite("bbob", f"instances: 1-{INSTANCES}", f"dimensions:{dimension}")
