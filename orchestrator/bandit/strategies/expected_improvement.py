"""Expected improvement over the best belief, exact (Salgia, Vakili, Zhao 2021, Appendix D.1; see `improvement`)."""

from dataclasses import dataclass

from orchestrator.bandit.arrays import Floats
from orchestrator.bandit.exact.compressed import log_improvement
from orchestrator.bandit.exact.improvement import Improvement


@dataclass(frozen=True)
class ExpectedImprovement(Improvement):
    """EI: the arm of largest (μ − f* − ε)Φ(z) + σφ(z), z = (μ − f* − ε)/σ (Salgia et al. 2021, Appendix D.1).

    Sequential: one pull at a time. Ties go to the lowest index.

    Args:
        kernel: k, the covariance function: rbf, matern32, matern52 or linear.
        regularization: λ, the variance of the noise in the model, > 0.
        margin: ε, by how much a value must exceed f* to count as an improvement, ≥ 0; the larger, the more is explored.
        warm_start: The first pulls: random, uncertainty or spread; or data, existing results instead of pulls.
        model: The calibrated model, in place of kernel and noise as given; None: rewards as they come, nothing fitted.
    """

    def improvement(self, mean: Floats, deviation: Floats, target: float) -> Floats:
        """The logarithm of the expected improvement (n,): far below `target` the improvement itself is 0 in floats."""
        return log_improvement(mean, deviation, target)
