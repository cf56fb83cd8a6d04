"""Compressed GP-UCB, "CUB" (see `compressed`: the long version, Algorithm 1 with eq. 2.5)."""

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from annotated_types import Gt
from typing_extensions import Doc

from bbkb.orchestrator.bandit.arrays import Floats
from bbkb.orchestrator.bandit.options import FailureProbability, Width
from bbkb.orchestrator.bandit.papers.compressed import Compressed, CompressedState


@dataclass(frozen=True)
class CompressedUCB(Compressed):
    """CUB: the arm with the largest μ_D + √β_t σ_D, β_t = 2 log(A t² π² / (6δ)) (Corollary 3.3), or
    β_t = 2 log(2t²π² / (3δ)) + 2d log(t² d b r √log(4da/δ)) (Theorem 3.2, ii).

    Arms are pulled one at a time. Ties go to the lowest index.

    Options: those of `Compressed`, and:
    """

    delta: Annotated[
        FailureProbability,
        Doc('δ, the failure probability, in (0, 1); the papers\' "hold with probability at least 0.9" is 0.1.'),
    ] = 0.1
    width: Width = None
    decision_set: Annotated[
        Literal["finite", "box"],
        Doc("β_t of Theorem 3.2: of the `finite` set of arms, or of the `box` [0, r]^d that they cover."),
    ] = "finite"
    gradient_constants: Annotated[
        tuple[Annotated[float, Gt(0)], Annotated[float, Gt(0)]],
        Doc("a and b of a `box`: P(sup |∂f/∂x_j| > L) ≤ a exp(−L²/b²), both > 0."),
    ] = (1.0, 1.0)

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
        if self.decision_set == "finite":
            beta = 2.0 * math.log(len(state.arms) * step**2 * math.pi**2 / (6.0 * self.delta))
        else:  # the paper prints X for Srinivas' 2 (2010, Theorem 2)
            features = state.model.arms
            d = features.shape[1]
            a, b = self.gradient_constants
            r = float(np.ptp(features, axis=0).max())
            smooth = step**2 * d * b * r * math.sqrt(max(math.log(4.0 * d * a / self.delta), 0.0))
            beta = 2.0 * math.log(2.0 * step**2 * math.pi**2 / (3.0 * self.delta))
            beta += 2.0 * d * math.log(max(smooth, 1.0))
        return math.sqrt(beta * state.noise)
