"""Probability of improvement over the best belief, with the exact posterior (see `improvement`)."""

from dataclasses import dataclass

import numpy as np

from bbkb.orchestrator.bandit.arrays import Floats
from bbkb.orchestrator.bandit.exact.improvement import Improvement


@dataclass(frozen=True)
class ProbabilityOfImprovement(Improvement):
    """PI: the arm with the largest Φ(z), z = (μ − f* − ε)/σ (Salgia et al. 2021, Appendix D.1).

    Arms are pulled one at a time. Ties go to the lowest index.

    Options: those of `Improvement`.
    """

    def improvement(self, mean: Floats, deviation: Floats, target: float) -> Floats:
        """Return z (n,), because Φ(z) is 0 or 1 in floats for values that z separates."""
        # an arm without uncertainty below the target has no chance; at the target, without a
        # margin, it has one half
        return np.asarray((mean - target) / np.maximum(deviation, 1e-100))
