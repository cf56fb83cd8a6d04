"""The objective of the compressed bandit papers: Rosenbrock's function (Bedi, Sadler et al.,
equation 4.2)."""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from objectives.datasets import DataSource
from objectives.objective import Evaluation, Parameters, Report
from objectives.parameters import Range, Space

A, B = 1.0, 10.0


@dataclass(frozen=True, slots=True)
class Rosenbrock:
    """f(x, y) = (a − x)² + b(y − x²)² with a = 1, b = 10, to be minimised; `noise_std` is that of
    the reward's noise.

    The papers give no domain. It is [−2, 2] × [−1, 3] here, which is usual for this function. The
    minimum of f is 0 at (1, 1); the maximum is 259.
    """

    noise_std: float = 0.1

    def __post_init__(self) -> None:
        if not (math.isfinite(self.noise_std) and self.noise_std >= 0):
            raise ValueError(f"noise_std must be finite and >= 0, got {self.noise_std}")

    def load(self, source: DataSource) -> Self:
        """The objective itself."""
        return self

    def default_space(self) -> Space:
        """x in [−2, 2], y in [−1, 3]."""
        return {"x": Range(-2.0, 2.0), "y": Range(-1.0, 3.0)}

    def evaluate(self, parameters: Parameters, seed: int, report: Report) -> Evaluation:
        """f(x, y) plus noise drawn from `seed`."""
        value = rosenbrock(parameters["x"], parameters["y"])
        noise = self.noise_std * float(np.random.default_rng(seed).standard_normal())
        return Evaluation(value + noise, {"noise_free": value})

    def optimum(self, maximize: bool) -> float:
        """The extreme value over the domain: in the corner (−2, −1), or at (a, a²)."""
        return rosenbrock(-2.0, -1.0) if maximize else 0.0


def rosenbrock(x: float, y: float) -> float:
    """(a − x)² + b(y − x²)² (Bedi, Sadler et al., equation 4.2)."""
    return (A - x) ** 2 + B * (y - x * x) ** 2
