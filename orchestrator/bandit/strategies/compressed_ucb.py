"""Compressed GP-UCB, "CUB" (Bedi, Peddireddy, Aggarwal, Sadler, Koppel, Algorithm 1 with eq. 2.5; see `compressed`)."""

import math
from dataclasses import dataclass

import numpy as np

from orchestrator.bandit.arrays import Floats
from orchestrator.bandit.checks import require_probability
from orchestrator.bandit.exact.compressed import Compressed, CompressedState


@dataclass(frozen=True)
class CompressedUCB(Compressed):
    """CUB: the arm of largest μ_D + √β_t σ_D, β_t = 2 log(A t² π² / (6δ)) (Corollary 3.3). Other fields: `Compressed`.

    Sequential: one pull at a time. Ties go to the lowest index.

    | field | symbol | meaning |
    | --- | --- | --- |
    | `delta` | δ | failure probability, in (0, 1); the papers' "hold with probability at least 0.9" is 0.1 |
    """

    delta: float = 0.1

    def __post_init__(self) -> None:
        Compressed.__post_init__(self)
        require_probability(self, "delta")

    def scores(self, state: CompressedState, step: int) -> Floats:
        """μ_D + √β_t σ_D of the available arms."""
        mean, variance = state.belief.mean[state.available], state.belief.variance[state.available]
        scores: Floats = mean + self.width(state, step) * np.sqrt(variance)
        return scores

    def width(self, state: CompressedState, step: int) -> float:
        """√(β_t σ²): the factor on σ_D/σ."""
        beta = 2.0 * math.log(len(state.arms) * step**2 * math.pi**2 / (6.0 * self.delta))
        return math.sqrt(beta * self.noise_variance)
