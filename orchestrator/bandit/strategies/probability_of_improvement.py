"""Probability of improvement on the best belief, exact (Salgia, Vakili, Zhao 2021, Appendix D.1;
see `improvement`)."""

from dataclasses import dataclass

import numpy as np

from orchestrator.bandit.arrays import Floats
from orchestrator.bandit.exact.improvement import Improvement


@dataclass(frozen=True)
class ProbabilityOfImprovement(Improvement):
    """PI: the arm of largest Φ(z), z = (μ − f* − ε)/σ (Salgia et al. 2021, Appendix D.1).

    Sequential: one pull at a time. Ties go to the lowest index.

    Options: those of `Improvement`.
    """

    def improvement(self, mean: Floats, deviation: Floats, target: float) -> Floats:
        """Return z (n,): Φ increases, and is 0 or 1 in floats where z still tells arms apart."""
        # a certain arm below the target has no chance; at the target, without a margin, it has one
        # half
        return np.asarray((mean - target) / np.maximum(deviation, 1e-100))
