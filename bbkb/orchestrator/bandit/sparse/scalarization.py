"""Scalarizes several upper bounds of an arm: computes one number that increases with each of them.

Objectives use the hypervolume scalarization of Golovin and Zhang (2020, "Random hypervolume
scalarizations for provable multi-objective black box optimization", eq. 1), with the upper bounds
u_j, a point z below all results, and a direction θ, uniform on the positive part of the unit
sphere:

    s_θ(u) = min_j (u_j − z_j)/θ_j

The mean over θ of s_θ to the power of the number of objectives is the hypervolume between z and u,
up to a constant factor. The largest s_θ marks the point at which the ray from z along θ leaves the
dominated region. Each pick has a different θ, so that a batch spreads along the front. With one
objective, s is u itself.

A constraint is considered satisfiable if its margin's posterior mean plus `CAUTION` times the
objectives' width · σ reaches the score of a margin of 0. Arms that satisfy all constraints in this
sense come first. With the full width, nearly every arm would pass, because σ contains the
uncertainty due to the objective's noise. The other arms are ordered by how close their upper bounds
are to satisfying all constraints, so the search continues toward the feasible region until it finds
it.

No score decreases when a bound increases, even in floating-point arithmetic, so upper bounds on u
result in upper bounds on scores.
"""

from dataclasses import dataclass

import numpy as np
import scipy

from bbkb.orchestrator.bandit.arrays import Floats
from bbkb.orchestrator.bandit.goals import Goals

Bound = tuple[int, float]  # μ̃ of an output (its index) plus a width times σ̃

INFEASIBLE = -1e200  # far below every score, but large enough to separate scores that it multiplies
LEAST_SHARE = 1e-6  # the smallest component of a direction
# 0 to 0.5 had similar results, 1 worse ones, on constrained tables (docs/measurements)
CAUTION = 0.25


@dataclass(frozen=True, eq=False)
class Scalarizing:
    """Computes one number from the J + 2C bounds of an arm: the objectives' upper bounds, then the
    constraints' cautious bounds, then the constraints' upper bounds."""

    floors: Floats  # z (J,)
    directions: Floats  # θ (J,), > 0
    limits: Floats  # (C,), the scores that the constraints must reach

    def scores(self, upper: Floats) -> Floats:
        """Return the scores (n,) of the bounds `upper` (J + 2C, n)."""
        count = len(self.floors)
        gains: Floats = upper[:count] - self.floors[:, None]
        gains /= self.directions[:, None]
        scores: Floats = gains[0] if count == 1 else gains.min(axis=0)
        if not len(self.limits):
            return scores
        cautious, hopes = np.split(upper[count:], 2)
        holds = (cautious >= self.limits[:, None]).all(axis=0)
        missing = (self.limits[:, None] - hopes).max(axis=0)
        # positive and increasing, even above the limits
        missing = np.where(missing < 0.0, 1.0 / (1.0 - np.minimum(missing, 0.0)), 1.0 + missing)
        return np.where(holds, scores, INFEASIBLE * missing)


def bounds_of(goals: Goals, width: float) -> list[Bound]:
    """Return the arguments of `Scalarizing`, in its order."""
    constraints = range(goals.objectives, goals.objectives + goals.constraints)
    cautious = [(output, CAUTION * width) for output in constraints]
    return [
        *((output, width) for output in range(goals.objectives)),
        *cautious,
        *((output, width) for output in constraints),
    ]


def direction(number: int, objectives: int) -> Floats:
    """Return θ (J,) of the pick with the index `number`, from a low-discrepancy sequence, so that a
    few picks cover all directions evenly.

    The R-sequence (Roberts 2018: multiples of powers of the root of x^(J+1) = x + 1) is mapped to
    normal variates, whose absolute values have uniform directions.
    """
    if objectives == 1:
        return np.ones(1)
    root = 2.0
    for _ in range(64):
        root = (1.0 + root) ** (1.0 / (objectives + 1))
    steps = root ** -np.arange(1.0, objectives + 1.0)
    shares = np.modf(0.5 + (number + 1) * steps)[0]
    normal: Floats = scipy.special.ndtri(0.5 + 0.5 * np.clip(shares, LEAST_SHARE, 1.0 - LEAST_SHARE))
    unit: Floats = normal / np.linalg.norm(normal)
    return unit
