"""Compressed EI, "CEI" (see `compressed`: the long version, Algorithm 1 with eq. 2.6)."""

from dataclasses import dataclass

from bbkb.orchestrator.bandit.arrays import Floats
from bbkb.orchestrator.bandit.exact.strategy import log_improvement
from bbkb.orchestrator.bandit.papers.compressed import Compressed, CompressedState


@dataclass(frozen=True)
class CompressedEI(Compressed):
    """CEI: the arm with the largest σ_D φ(z) + (μ_D − y_max)Φ(z), z = (μ_D − y_max)/σ_D.

    y_max is the largest *stored* reward: pairs that are not stored do not influence the belief.
    Arms are pulled one at a time. Ties go to the lowest index.

    Options: those of `Compressed`.
    """

    def scores(self, state: CompressedState, step: int) -> Floats:
        """Return the logarithm of the available arms' expected improvement, for any `step`."""
        return log_improvement(state.belief.mean[state.available], self.deviation(state), state.largest)
