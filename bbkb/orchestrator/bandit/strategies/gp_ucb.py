"""The exact Gaussian process, one pull at a time: GP-UCB (Srinivas et al. 2010; Chowdhury and Gopalan 2017), and
expected and probability of improvement over the best belief (see `exact.strategy.Improvement`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from bbkb.orchestrator.bandit.arrays import Floats
from bbkb.orchestrator.bandit.exact.strategy import ExactState, ExactStrategy, Improvement, log_improvement
from bbkb.orchestrator.bandit.options import Width
from bbkb.orchestrator.bandit.scheduling import WidthOptions
from bbkb.orchestrator.bandit.start.warm_start import ONE_PULL, WarmStartOption
from bbkb.orchestrator.bandit.strategy import Decision


@dataclass(frozen=True)
class GPUCB(WidthOptions, ExactStrategy[ExactState]):
    """The hyperparameters of GP-UCB (Srinivas et al. 2010, Algorithm 1). Raises ValueError if one
    is out of range.

    Each pull is the argmax of μ + β σ under the exact posterior. With σ on the 1/λ scale and G =
    log det(I + K/λ) over the pulls, β = ξ √(G + 2 log 1/δ) + √λ F bounds |f − μ|/σ for all arms and
    rounds with probability 1 − δ (Chowdhury and Gopalan 2017, Theorem 2; Abbasi-Yadkori 2013). A
    pull costs O(p² + pA) with p distinct pulled arms.

    `is_sequential`: no arm is chosen while a reward is missing, so a second worker would be idle.
    """

    warm_start: WarmStartOption = ONE_PULL
    width: Width = None
    is_sequential: ClassVar[Literal[True]] = True

    def ask(self, state: ExactState, pending: Sequence[int], limit: int) -> Decision:
        """Return one arm unless one is pending: first those of the warm start, then argmax u."""
        return self.next_pull(state, pending, limit, lambda: self.posterior(state).ucb)

    def width_at(self, state: ExactState) -> float:
        """Return β at `state`: a factor on σ of the 1/λ scale."""
        if self.width is not None:
            return self.width * math.sqrt(state.model.regularization)
        return self.exact_width(self.regularization, state.belief.information_gain)


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
