"""The problems of the measurements: candidates, noise-free values, and the paper's settings (BBKB,
section 5)."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.papers.nasbench101_cells import Cells
from objectives.datasets import DataSource
from objectives.names import find_objective
from orchestrator.bandit.arrays import Floats, freeze
from orchestrator.bandit.kernels import RBF
from orchestrator.bandit.start.warm_start import RandomStart
from orchestrator.bandit.strategies.bbkb import BBKB

NOISE = 0.01
BANDWIDTHS = {"cadata": 12.5, "abalone": 17.5, "nasbench101": 100.0, "synthetic": 1.0}


@dataclass(frozen=True)
class Problem:
    """`features` (A, d), noise-free `values` (A,) in [0, 1], bandwidth of the Gaussian kernel."""

    features: Floats
    values: Floats
    bandwidth: float

    def rewards(self, arms: list[int], noise: np.random.Generator) -> Floats:
        """The values of these arms with noise N(0, 0.01²)."""
        rewards: Floats = self.values[arms] + NOISE * noise.standard_normal(len(arms))
        return rewards

    def ratio(self, arms: list[int]) -> float:
        """The regret of these pulls, divided by the expected regret of as many uniform ones."""
        best = self.values.max()
        return float((best - self.values[arms]).sum() / (len(arms) * (best - self.values.mean())))

    def strategy(self, horizon: int, rule: str, covariance: str = "embedded") -> BBKB:
        """BBKB as in the paper's experiments: λ = ξ² = 1e-4, F = 1, δ = 1/T, q̄ = 2, C̃ = 2."""
        options: dict[str, Any] = {"termination": rule, "local_covariance": covariance}
        return BBKB(
            kernel=RBF(self.bandwidth),
            regularization=NOISE**2,
            noise_variance=NOISE**2,
            norm_bound=1.0,
            delta=1.0 / horizon,
            oversampling=2.0,
            ratio_threshold=2.0,
            warm_start=RandomStart(1),
            **options,
        )


def load(name: str, arms: int | None = None, dimension: int = 20) -> Problem:
    """The problem `name`; `synthetic` has uniform features (`arms`, `dimension`) and a smooth
    value."""
    if name == "synthetic":
        features = freeze(np.random.default_rng(0).random((arms or 10_000, dimension)))  # as a campaign's candidates
        shown = features[:, : min(dimension, 6)].T  # column by column: no second array of that size
        values = sum((np.sin(3.0 * column) for column in shown), np.zeros(len(features))) / len(shown)
        return Problem(features, values, BANDWIDTHS[name] * np.sqrt(dimension / 6.0))
    source = DataSource.find()
    table: Any = (Cells("all", NOISE) if name == "nasbench101" else find_objective(name)()).load(source)
    target = np.nanmean(table.target, axis=1)
    values = (target - target.min()) / np.ptp(target)
    return Problem(np.ascontiguousarray(table.features), values, BANDWIDTHS[name])
