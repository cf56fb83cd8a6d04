"""Probability of improvement on the best belief, exact (Salgia, Vakili, Zhao 2021, Appendix D.1; see `improvement`)."""

from dataclasses import dataclass

import numpy as np

from orchestrator.bandit.arrays import Floats
from orchestrator.bandit.exact.improvement import Improvement


@dataclass(frozen=True)
class ProbabilityOfImprovement(Improvement):
    """PI: the arm of largest Φ(z), z = (μ − f* − ε)/σ (Salgia et al. 2021, Appendix D.1).

    Sequential: one pull at a time. Ties go to the lowest index.

    Args:
        kernel: k, the covariance function: rbf, matern32, matern52 or linear.
        regularization: λ, the variance of the noise in the model, > 0.
        margin: ε, by how much a value must exceed f* to count as an improvement, ≥ 0; the larger, the more is explored.
        warm_start: The first pulls: random, uncertainty or spread; or data, existing results instead of pulls.
        model: The calibrated model, in place of kernel and noise as given; None: rewards as they come, nothing fitted.
    """

    def improvement(self, mean: Floats, deviation: Floats, target: float) -> Floats:
        """z (n,): Φ increases, and is 0 or 1 in floats where z still tells arms apart."""
        # a certain arm below the target has no chance; at the target, without a margin, it has one half
        return np.asarray((mean - target) / np.maximum(deviation, 1e-100))
