"""Functions, minimized.

The definitions of SHAPES are those of Surjanovic and Bingham's Virtual Library of Simulation
Experiments. Parameters are in [0, 1]. The seed shifts the optimum: the function is evaluated at
u − shift, scaled to its usual box, so it is also evaluated a little outside of that box. The minimum
is that of the whole space, and the shift is so small that the minimum stays inside.

`bbob-f15-d5` is function 15 of COCO's suite bbob (Hansen, Auger, Ros, Mersmann, Tušar, Brockhoff
2021) in 5 dimensions, without noise, and `mixint-f15-d5` that of bbob-mixint (Tušar, Brockhoff, Hansen
2019), in which four parameters of five are integers. The seed selects the instance, that is, the
position of the optimum and the rotation. Needs coco-experiment.
"""

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import find_spec
from typing import Any

import numpy as np
from scipy.stats import qmc

from bbkb.objectives.parameters import Range, Space
from bbkb.orchestrator.errors import UserError
from benchmarks.peers.problems import Evaluation, Point, WholeSpace, numbered, vector
from benchmarks.tables import Floats

NOISE = 0.01  # standard deviation of the noise, in units of (best − median)
_MEDIAN_OF = 14  # the median is computed from 2^14 Sobol points
_SHIFT_STREAM = 7


@dataclass(frozen=True)
class Shape:
    """A function of points (n, d) in the box [`low`, `high`]; `smallest` is its minimum, `shift`
    the largest shift as a share of the box's width."""

    of: Callable[[Floats], Floats]
    low: tuple[float, ...]
    high: tuple[float, ...]
    smallest: float
    shift: float


def branin(x: Floats) -> Floats:
    a, b = x[:, 0], x[:, 1]
    valley = b - 5.1 / (4 * np.pi**2) * a**2 + 5 / np.pi * a - 6
    value: Floats = valley**2 + 10 * (1 - 1 / (8 * np.pi)) * np.cos(a) + 10
    return value


_HARTMANN_A = np.array(
    [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
)
_HARTMANN_P = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)
_HARTMANN_C = np.array([1.0, 1.2, 3.0, 3.2])


def hartmann(x: Floats, a: Floats = _HARTMANN_A, p: Floats = _HARTMANN_P) -> Floats:
    distance = (a * (x[:, None, :] - p) ** 2).sum(axis=2)
    value: Floats = -(np.exp(-distance) @ _HARTMANN_C)
    return value


def ackley(x: Floats) -> Floats:
    radius, waves = np.sqrt((x**2).mean(axis=1)), np.cos(2 * np.pi * x).mean(axis=1)
    value: Floats = -20 * np.exp(-0.2 * radius) - np.exp(waves) + 20 + np.e
    return value


def rosenbrock(x: Floats) -> Floats:
    value: Floats = (100 * (x[:, 1:] - x[:, :-1] ** 2) ** 2 + (1 - x[:, :-1]) ** 2).sum(axis=1)
    return value


def levy(x: Floats) -> Floats:
    w = 1 + (x - 1) / 4
    middle = ((w[:, :-1] - 1) ** 2 * (1 + 10 * np.sin(np.pi * w[:, :-1] + 1) ** 2)).sum(axis=1)
    last = (w[:, -1] - 1) ** 2 * (1 + np.sin(2 * np.pi * w[:, -1]) ** 2)
    value: Floats = np.sin(np.pi * w[:, 0]) ** 2 + middle + last
    return value


SHAPES: Mapping[str, Shape] = {
    "branin": Shape(branin, (-5.0, 0.0), (10.0, 15.0), 10 / (8 * np.pi), 0.1),
    "hartmann6": Shape(hartmann, (0.0,) * 6, (1.0,) * 6, -3.322368011391339, 0.1),
    "ackley10": Shape(ackley, (-32.768,) * 10, (32.768,) * 10, 0.0, 0.2),
    "rosenbrock8": Shape(rosenbrock, (-2.048,) * 8, (2.048,) * 8, 0.0, 0.2),
    "levy20": Shape(levy, (-10.0,) * 20, (10.0,) * 20, 0.0, 0.2),
}


@dataclass(frozen=True)
class Function(WholeSpace):
    """The function `name` of SHAPES, shifted by `seed`; `noise` is in units of (best − median)."""

    name: str
    seed: int
    noise: float = 0.0

    @property
    def is_deterministic(self) -> bool:
        return not self.noise

    @cached_property
    def space(self) -> Space:
        return numbered([Range(0.0, 1.0)] * len(self._shape.low))

    def evaluate(self, point: Point, rng: np.random.Generator) -> Evaluation:
        """Evaluate a point. The reward is −f, in the function's own units."""
        value = float(self._at(vector(point, len(self.space))[None])[0])
        reward = -value + self.noise * self._unit * float(rng.standard_normal())
        return Evaluation((reward,), (value - self._shape.smallest) / self._unit)

    @property
    def _shape(self) -> Shape:
        return SHAPES[self.name]

    @cached_property
    def _shift(self) -> Floats:
        rng = np.random.default_rng([self.seed, _SHIFT_STREAM])
        return rng.uniform(-self._shape.shift, self._shape.shift, len(self._shape.low))

    @cached_property
    def _unit(self) -> float:
        """The unit of the regret: median − minimum."""
        points = qmc.Sobol(len(self._shape.low), seed=0).random_base2(_MEDIAN_OF)
        return float(np.median(self._at(points))) - self._shape.smallest

    def _at(self, points: Floats) -> Floats:
        """Values (n,) at `points` (n, d) of the unit cube."""
        low, high = np.array(self._shape.low), np.array(self._shape.high)
        return self._shape.of(low + (high - low) * (points - self._shift))


FUNCTIONS = 24
DIMENSIONS: Mapping[str, tuple[int, ...]] = {"bbob": (5, 10, 20), "mixint": (5, 10)}  # by suite
INSTANCES = 15  # the suites number them from 1
_PLACE = "._bbob_problem_best_parameter.txt"
_DIGITS = 6  # of a minimum, which has fewer
_BBOB_MEDIAN_OF = 12  # the median is computed from 2^12 Sobol points


def bbob_names(suite: str, dimension: int) -> Iterator[str]:
    """The problems of one dimension of a suite in DIMENSIONS."""
    return (f"{suite}-f{function}-d{dimension}" for function in range(1, FUNCTIONS + 1))


@dataclass(frozen=True)
class Bbob(WholeSpace):
    """Function `function` of `suite` in `dimension` dimensions; `seed` selects one of the 15 instances."""

    suite: str
    function: int
    dimension: int
    seed: int

    @cached_property
    def space(self) -> Space:
        low, high = self._bounds
        integers = self._function.number_of_integer_variables  # they are the first ones
        bounds = enumerate(zip(low.tolist(), high.tolist(), strict=True))
        return numbered([Range(*bound, integer=place < integers) for place, bound in bounds])

    def evaluate(self, point: Point, rng: np.random.Generator) -> Evaluation:
        """Evaluate a point. The reward is −f."""
        value = float(self._function(vector(point, self.dimension)))
        return Evaluation((-value,), (value - self._smallest) / self._unit)

    @cached_property
    def _function(self) -> Any:
        instance = 1 + self.seed % INSTANCES
        suite = _suite(self.suite, self.dimension)
        return suite.get_problem_by_function_dimension_instance(self.function, self.dimension, instance)

    @property
    def _bounds(self) -> tuple[Floats, Floats]:
        return self._function.lower_bounds, self._function.upper_bounds

    @cached_property
    def _smallest(self) -> float:
        """The minimum. The suite writes its position to the current folder."""
        with tempfile.TemporaryDirectory(prefix="peers-bbob-") as folder, contextlib.chdir(folder):
            self._function._best_parameter("print")
            place = np.loadtxt(_PLACE)
        return round(float(self._function(place)), _DIGITS)

    @cached_property
    def _unit(self) -> float:
        """The unit of the regret: median − minimum."""
        low, high = self._bounds
        points = low + (high - low) * qmc.Sobol(self.dimension, seed=0).random_base2(_BBOB_MEDIAN_OF)
        integers = self._function.number_of_integer_variables
        points[:, :integers] = np.round(points[:, :integers])
        return float(np.median([self._function(point) for point in points])) - self._smallest


def load_bbob(name: str, seed: int) -> Bbob:
    """The problem of a name that `bbob_names` gives."""
    suite, function, dimension = name.split("-")
    return Bbob(suite, int(function[1:]), int(dimension[1:]), seed)


@cache
def _suite(name: str, dimension: int) -> Any:
    if find_spec("cocoex") is None:
        raise UserError(f"the problems {name}-… need cocoex, which is not installed; pip install coco-experiment")
    import cocoex

    suite = name if name == "bbob" else f"bbob-{name}"
    return cocoex.Suite(suite, f"instances: 1-{INSTANCES}", f"dimensions:{dimension}")
