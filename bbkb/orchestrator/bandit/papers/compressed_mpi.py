"""Compressed "most probable improvement" (see `compressed`: the long version, Section 4)."""

from dataclasses import dataclass

from bbkb.orchestrator.bandit.arrays import Floats
from bbkb.orchestrator.bandit.exact.strategy import log_improvement
from bbkb.orchestrator.bandit.papers.compressed import Compressed, CompressedState


@dataclass(frozen=True)
class CompressedMPI(Compressed):
    """CMPI: the arm with the largest σ_D φ(z) + (μ_D − ξ)Φ(z), z = (μ_D − ξ)/σ_D.

    ξ is the largest posterior mean of the arms that may be chosen. The acquisition is therefore an
    expected improvement over the best belief, while CEI uses the best reward. Arms are pulled one
    at a time. Ties go to the lowest index.

    Options: those of `Compressed`.
    """

    def scores(self, state: CompressedState, step: int) -> Floats:
        """Return the logarithm of the acquisition of the available arms, for any `step`."""
        mean = state.belief.mean[state.available]
        return log_improvement(mean, self.deviation(state), float(mean.max()))
