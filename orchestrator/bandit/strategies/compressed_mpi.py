"""Compressed "most probable improvement" (Bedi, Peddireddy, Aggarwal, Sadler, Koppel, Section 4; see `compressed`)."""

from dataclasses import dataclass

from orchestrator.bandit.arrays import Floats
from orchestrator.bandit.exact.compressed import Compressed, CompressedState, log_improvement


@dataclass(frozen=True)
class CompressedMPI(Compressed):
    """CMPI: the arm of largest σ_D φ(z) + (μ_D − ξ)Φ(z), z = (μ_D − ξ)/σ_D.

    ξ is the largest posterior mean of the arms that may be chosen. So it is an expected improvement, over the best
    belief where CEI takes the best reward. Sequential: one pull at a time. Ties go to the lowest index.

    Args:
        kernel: k, the covariance function: rbf, matern32, matern52 or linear.
        noise_variance: σ², the variance of the reward's noise, > 0.
        epsilon: ε, the compression budget; −∞ (`absolute`) or 0 (`relative`) compresses nothing.
        entropy_test: `absolute`: store a pull if H > ε; `relative`: if H > log √(2πeσ²) + ε, which needs ε ≥ 0.
        evaluate_uninformative: True: evaluate every step, store the informative ones; False: skip the others.
        initial_points: Distinct random arms that are pulled and stored first, untested, ≥ 1; None: 2^d, or all arms.
        max_skipped: With `evaluate_uninformative` False: how many steps in a row may be skipped before the run ends,
            ≥ 0.
    """

    def scores(self, state: CompressedState, step: int) -> Floats:
        """The logarithm of the acquisition of the available arms; `step` does not matter."""
        mean = state.belief.mean[state.available]
        return log_improvement(mean, self.deviation(state), float(mean.max()))
