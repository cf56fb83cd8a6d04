"""Expected improvement over the best belief, with the exact posterior (see `improvement`)."""

from dataclasses import dataclass

from bbkb.orchestrator.bandit.arrays import Floats
from bbkb.orchestrator.bandit.exact.improvement import Improvement, log_improvement


@dataclass(frozen=True)
class ExpectedImprovement(Improvement):
    """EI: the arm with the largest (μ − f* − ε)Φ(z) + σφ(z), z = (μ − f* − ε)/σ (Salgia et al.
    2021, Appendix D.1).

    Arms are pulled one at a time. Ties go to the lowest index.

    Options: those of `Improvement`.
    """

    def improvement(self, mean: Floats, deviation: Floats, target: float) -> Floats:
        """Return the logarithm of the expected improvement (n,), because the improvement itself is
        0 in floats far below `target`."""
        return log_improvement(mean, deviation, target)
