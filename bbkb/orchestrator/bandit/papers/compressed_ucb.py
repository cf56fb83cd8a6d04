"""Compressed GP-UCB, "CUB" (see `compressed`: the long version, Algorithm 1 with eq. 2.5)."""

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from typing_extensions import Doc

from bbkb.orchestrator.bandit.arrays import Floats
from bbkb.orchestrator.bandit.options import FailureProbability, Width
from bbkb.orchestrator.bandit.papers.compressed import Compressed, CompressedState


@dataclass(frozen=True)
class CompressedUCB(Compressed):
    """CUB: the arm with the largest μ_D + √β_t σ_D, β_t = 2 log(A t² π² / (6δ)) (Corollary 3.3).

    Arms are pulled one at a time. Ties go to the lowest index.

    Options: those of `Compressed`, and:
    """

    delta: Annotated[
        FailureProbability,
        Doc('δ, the failure probability, in (0, 1); the papers\' "hold with probability at least 0.9" is 0.1.'),
    ] = 0.1
    width: Width = None

    def scores(self, state: CompressedState, step: int) -> Floats:
        """Return μ_D + √β_t σ_D of the available arms."""
        mean = state.belief.mean[state.available]
        variance = state.belief.variance[state.available]
        scores: Floats = mean + self.width_at(state, step) * np.sqrt(variance)
        return scores

    def width_at(self, state: CompressedState, step: int) -> float:
        """Return √(β_t σ²), or the fixed width times σ: the factor on σ_D/σ."""
        if self.width is not None:
            return self.width * math.sqrt(state.noise)
        beta = 2.0 * math.log(len(state.arms) * step**2 * math.pi**2 / (6.0 * self.delta))
        return math.sqrt(beta * state.noise)
