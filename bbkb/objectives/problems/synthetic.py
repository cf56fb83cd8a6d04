"""Problems that are their own objective: functions with a formula (the papers' test functions, with
optional noise and delay, whose listed class is its own objective), and regression data sets as
bandit problems, Abalone and California housing (Cadata), as in Calandriello et al. 2020.

Every row of a data set is an arm. The reward is the target scaled to [0, 1] plus N(0, 0.01²). The
paper does not state how features are scaled; here they are standardized.
"""

import math
import time
from dataclasses import dataclass
from typing import Annotated, Self

import numpy as np
from annotated_types import Ge, Lt
from typing_extensions import Doc

from bbkb.objectives.objective import Evaluation, Parameters, Report
from bbkb.objectives.parameters import Range, Space
from bbkb.objectives.problems.datasets import Regression, load_abalone, load_cadata
from bbkb.objectives.reference import DataSource
from bbkb.objectives.tabular import NoiseOption, Table


@dataclass(frozen=True, slots=True)
class Formula:
    """An objective with a formula, and its options."""

    noise_std: NoiseOption = 0.1
    seconds: Annotated[
        float,
        Ge(0),
        Lt(math.inf),
        Doc("The seconds that an evaluation sleeps, to simulate an expensive one."),
    ] = 0.0

    def load(self, source: DataSource) -> Self:
        """Return the objective itself."""
        return self

    def with_noise(self, value: float, seed: int) -> Evaluation:
        """Return `value` with noise drawn from `seed`, after `seconds`."""
        if self.seconds:
            time.sleep(self.seconds)
        noise = self.noise_std * float(np.random.default_rng(seed).standard_normal())
        return Evaluation(value + noise, {"noise_free": value})


@dataclass(frozen=True, slots=True)
class Sine(Formula):
    """f(x) = sin x + cos x + 0.1 x, the example of the compressed bandit papers (Bedi, Sadler et
    al., equation 4.1).

    The papers do not state the interval; on [0, 10], the larger of two maxima is in the interior.
    In Bedi et al. 2020, the noise has standard deviation 1.
    """

    def default_space(self) -> Space:
        """Return x in [0, 10]."""
        return {"x": Range(0.0, 10.0)}

    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        """Return f(x) plus noise drawn from `seed`. Raises ValueError without a coordinate."""
        return self.with_noise(sine(*_coordinates(parameters, "x")), seed)

    def optimum(self, maximize: bool) -> float:
        """Return the extreme value over [0, 10]."""
        values = [sine(x) for x in (0.0, 10.0, *_stationary_points())]
        return max(values) if maximize else min(values)


@dataclass(frozen=True, slots=True)
class Branin(Formula):
    """Branin's function on [0, 1]², scaled to mean 0 and variance 1 and negated (Salgia et al.
    2021).

    f(x, y) = −((v − 5.1u²/4π² + 5u/π − 6)² + (10 − 10/8π) cos u − 44.81) / 51.95 with u = 15x − 5,
    v = 15y. The default noise has the paper's variance, 0.01.
    """

    def default_space(self) -> Space:
        """Return x and y in [0, 1]."""
        return {"x": Range(0.0, 1.0), "y": Range(0.0, 1.0)}

    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        """Return f(x, y) plus noise drawn from `seed`. Raises ValueError without a coordinate."""
        return self.with_noise(branin(*_coordinates(parameters, "x", "y")), seed)

    def optimum(self, maximize: bool) -> float:
        """Return the extreme value over [0, 1]²: at u = π, the zero of the square, or at x = y = 0."""
        return branin((math.pi + 5) / 15, 2.275 / 15) if maximize else branin(0.0, 0.0)


def sine(x: float) -> float:
    """Return sin x + cos x + 0.1 x (Bedi, Sadler et al., equation 4.1)."""
    return math.sin(x) + math.cos(x) + 0.1 * x


def branin(x: float, y: float) -> float:
    """Return the scaled Branin function at (x, y) in [0, 1]² (Salgia et al. 2021, supplement)."""
    u = 15 * x - 5
    v = 15 * y
    square = (v - 5.1 * u**2 / (4 * math.pi**2) + 5 * u / math.pi - 6) ** 2
    return -(square + (10 - 10 / (8 * math.pi)) * math.cos(u) - 44.81) / 51.95


def _coordinates(parameters: Parameters, *names: str) -> list[float]:
    for name in names:
        if name not in parameters:
            raise ValueError(f"the space must have {' and '.join(names)}, got {', '.join(parameters)}")
    return [parameters[name] for name in names]


def _stationary_points() -> list[float]:
    """Return the zeros of f' = cos x − sin x + 0.1 = √2 cos(x + π/4) + 0.1 on [0, 10]."""
    angle = math.acos(-0.1 / math.sqrt(2))
    points = [sign * angle - math.pi / 4 + 2 * math.pi * turn for sign in (-1, 1) for turn in range(3)]
    return [x for x in points if 0 <= x <= 10]


@dataclass(frozen=True, slots=True)
class _RegressionData:
    """The options of a regression data set, each row of which is an arm."""

    noise_std: NoiseOption = 0.01

    def default_space(self) -> Space | None:
        """Return None, because the table has its own candidates."""
        return None


@dataclass(frozen=True, slots=True)
class Abalone(_RegressionData):
    """The age of 4177 abalones, in rings, from eight measurements (UCI), as a bandit problem."""

    def load(self, source: DataSource) -> Table:
        """Return the table. Raises ObjectiveError if the data are not available."""
        return _standardize(load_abalone(source), self.noise_std)


@dataclass(frozen=True, slots=True)
class Cadata(_RegressionData):
    """The median house value of 20640 Californian blocks (Pace & Barry 1997) as bandit arms."""

    def load(self, source: DataSource) -> Table:
        """Return the table. Raises ObjectiveError if the data are not available."""
        return _standardize(load_cadata(source), self.noise_std)


def _standardize(regression: Regression, noise_std: float) -> Table:
    features = regression.features
    low = regression.target.min()
    high = regression.target.max()
    columns = {name: features[:, index] for index, name in enumerate(regression.names)}
    return Table(
        (features - features.mean(axis=0)) / features.std(axis=0),
        columns,
        (regression.target - low) / (high - low),
        noise_std,
        description=regression.source,
    )
