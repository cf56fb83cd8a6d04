"""Several upper bounds of an arm as one number that rises with each of them.

For objectives the hypervolume scalarisation of Golovin and Zhang (2020, "Random hypervolume
scalarizations for provable multi-objective black box optimization", eq. 1), with u_j the upper
bounds, z a point below all results and θ a direction, uniform on the positive part of the unit
sphere:

    s_θ(u) = min_j (u_j − z_j)/θ_j

Its mean over θ, to the power of the number of objectives, is the hypervolume between z and u, up to
a constant; the largest s_θ is where the ray from z along θ leaves what is reached. Each pick has
another θ, so that a batch spreads along the front. With one objective s is u itself.

A constraint may hold where its margin's posterior mean plus `CAUTION` times the objectives' width ·
σ reaches the score of a margin of 0. Such arms come first. With the whole width nearly every arm
would pass, since σ contains the uncertainty due to the objective's noise. Of the others, the higher
is the one whose constraints are all closest to hold by their upper bounds, so that the feasible
region is searched for as long as none is known.

Nothing here falls when a bound rises, in floating-point numbers too; so upper bounds on u give
upper bounds on scores.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from orchestrator.bandit.arrays import Floats
from orchestrator.bandit.goals import Goals

Bound = tuple[int, float]  # μ̃ of an output, by its number, plus a width times σ̃

INFEASIBLE = -1e200  # far below every score, and large enough to separate the scores that it multiplies
LEAST_SHARE = 1e-6  # of a direction
CAUTION = 0.25  # 0 to 0.5 gave similar results, and 1 worse ones, on constrained tables (docs/measurements)


@dataclass(frozen=True, eq=False)
class Scalarising:
    """One number for the J + 2C bounds of an arm: the objectives' upper bounds, cautious ones of
    the constraints, and their upper bounds."""

    floors: Floats  # z (J,)
    directions: Floats  # θ (J,), > 0
    limits: Floats  # (C,), scores that the constraints have to reach

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
        # > 0 and increasing, also above the limits
        missing = np.where(missing < 0.0, 1.0 / (1.0 - missing), 1.0 + missing)
        return np.where(holds, scores, INFEASIBLE * missing)


def bounds_of(goals: Goals, width: float) -> list[Bound]:
    """Return the inputs of `Scalarising`, in its order."""
    constraints = range(goals.objectives, goals.objectives + goals.constraints)
    cautious = [(output, CAUTION * width) for output in constraints]
    return [
        *((output, width) for output in range(goals.objectives)),
        *cautious,
        *((output, width) for output in constraints),
    ]


def direction(number: int, objectives: int) -> Floats:
    """Return θ (J,) of the pick `number`: a sequence of low discrepancy, so that few picks cover
    all directions evenly.

    The R-sequence (Roberts 2018: multiples of powers of the root of x^(J+1) = x + 1), through the
    normal distribution, whose absolute values are uniform in direction.
    """
    if objectives == 1:
        return np.ones(1)
    root = 2.0
    for _ in range(64):
        root = (1.0 + root) ** (1.0 / (objectives + 1))
    steps = root ** -np.arange(1.0, objectives + 1.0)
    shares = np.modf(0.5 + (number + 1) * steps)[0]
    normal: Floats = ndtri(0.5 + 0.5 * np.clip(shares, LEAST_SHARE, 1.0 - LEAST_SHARE))
    unit: Floats = normal / np.linalg.norm(normal)
    return unit
