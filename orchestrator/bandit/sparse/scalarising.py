"""Several upper bounds of an arm as one number that rises with each of them.

For objectives the hypervolume scalarisation of Golovin and Zhang (2020, "Random hypervolume scalarizations for provable
multi-objective black box optimization", eq. 1), with u_j the upper bounds, z a point below all results and θ a
direction, uniform on the positive part of the unit sphere:

    s_θ(u) = min_j (u_j − z_j)/θ_j

Its mean over θ, to the power of the number of objectives, is the hypervolume between z and u, up to a constant; the
largest s_θ is where the ray from z along θ leaves what is reached. Each pick has another θ, so that a batch spreads
along the front. With one objective s is u itself.

A constraint holds where its margin's upper bound reaches the score of a margin of 0. An arm that cannot satisfy them
all comes after every arm that can, and is the higher the less it misses them by, in sum.

Nothing here falls when a bound rises, in floating-point numbers too; so upper bounds on u give upper bounds on scores.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from orchestrator.bandit.arrays import Floats

INFEASIBLE = -1e200  # far below every score, and keeps what is multiplied by it apart
LEAST_SHARE = 1e-6  # of a direction


@dataclass(frozen=True, eq=False)
class Scalarising:
    """`floors` z (J,) and `directions` θ (J,), > 0, of the objectives; `limits` (C,) that constraints have to reach."""

    floors: Floats
    directions: Floats
    limits: Floats

    def scores(self, upper: Floats) -> Floats:
        """The scores (n,) of upper bounds (J + C, n), the objectives' first."""
        count = len(self.floors)
        gains: Floats = upper[:count] - self.floors[:, None]
        gains /= self.directions[:, None]
        scores: Floats = gains[0] if count == 1 else gains.min(axis=0)
        if not len(self.limits):
            return scores
        missing = np.maximum(self.limits[:, None] - upper[count:], 0.0).sum(axis=0)
        return np.where(missing > 0.0, INFEASIBLE * (1.0 + missing), scores)


def direction(number: int, objectives: int) -> Floats:
    """θ (J,) of the pick `number`: a sequence of low discrepancy, so that few picks cover all directions evenly.

    The R-sequence (Roberts 2018: multiples of powers of the root of x^(J+1) = x + 1), through the normal distribution,
    whose absolute values are uniform in direction.
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
