"""Compressed GP-UCB, "CUB" (Bedi, Peddireddy, Aggarwal, Sadler, Koppel, Algorithm 1 with eq. 2.5; see `compressed`)."""

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from typing_extensions import Doc

from orchestrator.bandit.arrays import Floats
from orchestrator.bandit.exact.compressed import Compressed, CompressedState
from orchestrator.bandit.options import FailureProbability


@dataclass(frozen=True)
class CompressedUCB(Compressed):
    """CUB: the arm of largest μ_D + √β_t σ_D, β_t = 2 log(A t² π² / (6δ)) (Corollary 3.3).

    Sequential: one pull at a time. Ties go to the lowest index.

    Args:
        kernel: k, the covariance function: rbf, matern32, matern52 or linear.
        noise_variance: σ², the variance of the reward's noise, > 0.
        epsilon: ε, the compression budget; −∞ (`absolute`) or 0 (`relative`) compresses nothing.
        entropy_test: `absolute`: store a pull if H > ε; `relative`: if H > log √(2πeσ²) + ε, which needs ε ≥ 0.
        evaluate_uninformative: True: evaluate every step, store the informative ones; False: skip the others.
        initial_points: Distinct random arms that are pulled and stored first, untested, ≥ 1; None: 2^d, or all arms.
        max_skipped: With `evaluate_uninformative` False: how many steps in a row may be skipped before the run ends,
            ≥ 0.
        delta: δ, the failure probability, in (0, 1); the papers' "hold with probability at least 0.9" is 0.1.
    """

    delta: Annotated[
        FailureProbability,
        Doc('δ, the failure probability, in (0, 1); the papers\' "hold with probability at least 0.9" is 0.1.'),
    ] = 0.1

    def scores(self, state: CompressedState, step: int) -> Floats:
        """μ_D + √β_t σ_D of the available arms."""
        mean, variance = state.belief.mean[state.available], state.belief.variance[state.available]
        scores: Floats = mean + self.width(state, step) * np.sqrt(variance)
        return scores

    def width(self, state: CompressedState, step: int) -> float:
        """√(β_t σ²): the factor on σ_D/σ."""
        beta = 2.0 * math.log(len(state.arms) * step**2 * math.pi**2 / (6.0 * self.delta))
        return math.sqrt(beta * self.noise_variance)
